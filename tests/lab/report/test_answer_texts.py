"""The report shows what language models answer."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tests.helpers.browser import needs_browser
from tests.helpers.reports import HOSTILE, VARIANT, make_study
from unweave.errors import RunError
from unweave.lab.report import answer_table, read_results, write_report
from unweave.lab.report import answer_texts as answer_module
from unweave.lab.report.answer_texts import answer_texts
from unweave.lab.report.grids import study_grids
from unweave.lab.study import Store


def said(words, count=3):
    """What a model writes to some questions of each subset."""
    return {
        subset: {
            "questions": [f"{subset} question {number}?" for number in range(count)],
            "answers": [f"truth {number}" for number in range(count)],
            "written": [f"{words} {number}" for number in range(count)],
        }
        for subset in ("forget", "adjacent", "remote")
    }


def with_answers(folder, words, count=3):
    """Put answers beside the runs of some methods."""
    store = Store.open(folder)
    for method, text in words.items():
        for name, labels in store.finished(method).items():
            (store.cells / name / "said.json").write_text(json.dumps(said(f"{text} {labels['seed']}", count)))
    return folder


def test_the_answers_of_the_first_seed_stand_beside_each_other(tmp_path):
    folder = with_answers(make_study(tmp_path / "study"), {"original": "before", "retrain": "never", "ft": "after"})
    results = read_results(folder)
    found = answer_texts(results, results.groups)
    assert found["seed"] == 0
    labels = {results.label(results.groups[number]): texts for number, texts in found["said"].items()}
    assert {label: texts["forget"][1] for label, texts in labels.items()} == {
        "original": "before 0 1",
        "retrain": "never 0 1",
        "ft": "after 0 1",
    }
    assert found["subsets"]["adjacent"]["truths"] == ["truth 0", "truth 1", "truth 2"]


def test_no_answer_hides_or_reorders_what_stands_around_it(tmp_path):
    folder = with_answers(make_study(tmp_path / "study"), {"original": "b\u202e\x9b", "ft": "</script>\u2028"})
    write_report(folder, figures=False)
    page = (folder / "report" / "index.html").read_text()
    content = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    answers = [texts["forget"][0] for texts in content["answers"]["said"].values()]
    assert answers == ["b\\u202e\\x9b 0 0", "</script>\\u2028 0 0"]
    assert not set(page) & set("\u202e\x9b\u2028")


def test_many_answers_are_spread_evenly_and_counted(tmp_path, monkeypatch):
    folder = with_answers(make_study(tmp_path / "study"), {"ft": "after"}, count=40)
    results = read_results(folder)
    monkeypatch.setattr(answer_module, "SHOWN", 4)
    found = answer_texts(results, results.groups)["subsets"]["forget"]
    assert found["questions"] == [f"forget question {number}?" for number in (0, 10, 20, 30)]
    assert found["all"] == 40
    monkeypatch.setattr(answer_module, "MOST_TEXT", 60)  # two answers of about ten characters in three subsets
    assert len(answer_texts(results, results.groups)["subsets"]["forget"]["questions"]) <= 2


def test_a_study_without_language_models_has_no_answers(tmp_path):
    folder = make_study(tmp_path / "study")
    results = read_results(folder)
    assert answer_texts(results, results.groups) is None
    write_report(folder, figures=False)
    assert 'id="answers"' not in (folder / "report" / "index.html").read_text()


def test_answers_that_do_not_fit_their_questions_are_refused(tmp_path):
    folder = with_answers(make_study(tmp_path / "study"), {"ft": "after"})
    (file, *_) = folder.glob("cells/*/said.json")
    content = json.loads(file.read_text())
    content["forget"]["written"].pop()
    file.write_text(json.dumps(content))
    with pytest.raises(RunError, match="forget data has not as many answers as questions"):
        read_results(folder)


def test_numbers_about_answers_have_tables_of_their_own(tmp_path):
    folder = make_study(tmp_path / "study")
    store = Store.open(folder)
    for name in store.finished("ft"):
        rows = [
            {"split": "answers", "subset": "forget", "metric": "rouge", "value": 0.25, "better": "lower"},
            {"split": "answers", "subset": "forget", "metric": "ks_statistic", "value": 0.5, "better": "lower"},
            {"split": "answers", "subset": "", "metric": "model_utility", "value": 0.75, "better": "higher"},
        ]
        (store.cells / name / "answer_scores.json").write_text(json.dumps({"metrics": rows}))
    grids = {grid.name: grid for grid in study_grids(read_results(folder))}
    shown = {name: [column.heading for column in grids[name].columns] for name in ("answers", "forgotten-answers")}
    assert shown == {
        "answers": ["seeds", "rouge ↓"],
        "forgotten-answers": ["seeds", "ks statistic ↓", "model utility ↑"],
    }
    ft = next(row for row in grids["forgotten-answers"].rows if row.name == "ft")
    assert [entry.text for entry in ft.entries][1:] == ["0.500 ± 0.000", "0.750 ± 0.000"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = make_study(tmp_path_factory.mktemp("answers") / "study")
    words = {"original": "before", "retrain": "never", "ft": "after", HOSTILE: "<b>bold</b>"}
    with_answers(folder, words, count=80)
    write_report(folder)
    return folder


@needs_browser
def test_answers_can_be_chosen_and_searched(browser, study):
    browser.open(study / "report" / "index.html")
    assert browser.log("browser") == []
    cells = "[...row.cells].map((cell) => cell.textContent)"
    rows = f"return [...document.getElementById('answers-table').rows].map((row) => {cells})"
    options = "return [...document.getElementById('answers-group').options].map((one) => [one.textContent, one.value])"
    number = dict(browser.run(options))
    assert set(number) == {"ft", f"{HOSTILE} {VARIANT}"}
    browser.select("answers-group", number["ft"])
    browser.select("answers-subset", "adjacent")
    shown = browser.run(rows)
    assert shown[0] == ["question", "truth", "before", "after ft", "retrained"]
    assert shown[1] == ["adjacent question 0?", "truth 0", "before 0 0", "after 0 0", "never 0 0"]
    assert len(shown) == 51
    search = "const box = document.getElementById('answers-search'); box.value = arguments[0];"
    browser.run(search + " box.dispatchEvent(new Event('input'))", "TRUTH 77")
    assert [row[0] for row in browser.run(rows)[1:]] == ["adjacent question 77?"]
    assert browser.run("return document.getElementById('answers-said').textContent").startswith("1 of 80 questions")
    browser.select("answers-group", number[f"{HOSTILE} {VARIANT}"])
    assert browser.run(rows)[1][3] == "<b>bold</b> 0 77"  # the search stays, and text stays text
    assert browser.run("return document.querySelectorAll('#answers-table b').length") == 0


def test_a_study_of_answers_prints_their_probability_and_rouge():
    def scores(probability, rouge):
        numbers = {"probability": probability, "rouge": rouge}
        return {
            "metrics": [
                {"split": "answers", "subset": subset, "metric": metric, "value": value, "better": "higher"}
                for metric, value in numbers.items()
                for subset in ("forget", "adjacent")
            ]
        }

    console = Console(record=True, width=80)
    console.print(answer_table({"npo": [scores(0.25, 0.5), scores(0.75, 0.5)], "original": [scores(1.0, 1.0)]}))
    shown = {line.split()[0]: line.split()[1:] for line in console.export_text().splitlines() if line.strip()}
    assert shown["npo"] == ["50.0±35.4", "50.0±35.4", "–", "50.0±0.0", "50.0±0.0", "–"]
    assert shown["original"] == ["100.0", "100.0", "–", "100.0", "100.0", "–"]
    assert shown["answers"][:2] == ["in", "%,"]
