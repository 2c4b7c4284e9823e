"""report.html of one run."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

from tests.helpers.browser import needs_browser
from unweave import Compute, Split, unlearn
from unweave.evaluation import AnswerSheet, Scores
from unweave.runs import answers_section, plain_page, run_page

RED = "data:image/gif;base64,R0lGODlhAQABAIAAAP8AAP///ywAAAAAAQABAAACAkQBADs="
CONFIG = {"method": "ga", "profile": "default", "settings": {"epochs": 5}, "seed": 0, "precision": "float32"}


def test_every_run_in_a_folder_has_a_page(model, split, tmp_path):
    unlearn(
        model, split, "ga", learning_rate=1e-2, out=tmp_path / "run", guard=None, test=split, compute=Compute("cpu")
    )
    page = (tmp_path / "run" / "report.html").read_text()
    for part in ("Forgotten:", "What to do:", "Before and after", "Groups", "What this does not show", "learning_rate"):
        assert part in page
    assert "<script" not in page
    assert (tmp_path / "run" / "report.html").stat().st_mode & 0o077 == 0  # exact numbers


def test_groups_are_those_of_the_labels(data, tmp_path):
    model = torch.nn.Linear(5, 3)
    torch.nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))  # it says 0 to everything
    from unweave.runs.run_page import groups

    result = unlearn(
        model,
        Split(data, forget=range(8), adjacent=range(8, 30)),
        "ft",
        learning_rate=1e-9,
        epochs=1,
        out=tmp_path / "run",
        guard=None,
        compute=Compute("cpu"),
    )
    found = {(one.split, one.subset, one.label): (one.samples, one.before) for one in groups(result.scores, {1: "one"})}
    assert found == {
        ("train", "forget", "0"): (8, 1.0),
        ("train", "adjacent", "0"): (12, 1.0),
        ("train", "adjacent", "one"): (10, 0.0),
        ("train", "remote", "one"): (10, 0.0),
        ("train", "remote", "2"): (20, 0.0),
    }


@pytest.mark.parametrize(("reached", "kept"), [*itertools.product((True, False, None), repeat=2)])
def test_the_heading_says_what_happened_and_what_to_do(reached, kept):
    page = run_page(CONFIG, Scores({}), "words", {"forget": 3}, reached=reached, kept=kept)
    heading = page.partition("<h1>")[2].partition("</h1>")[0]
    advice = page.partition('<p class="advice">')[2].partition("</p>")[0]
    assert ("forgot the data" in heading) == (reached is True)
    assert ("kept the rest" in heading and "nor kept" not in heading) == (kept is True)
    assert ("not known" in heading + advice) == (reached is None or (reached, kept) == (True, None))
    assert ("do not use it" in advice) == (reached is False)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    head = ["subset", "predicted before", "after", "row", "text", "image"]
    rows = [
        [
            "forget" if row < 3 else "adjacent",
            "red",
            "blue",
            row,
            f"A sentence on <b>{row}</b> " * 20,
            plain_page.Picture(RED),
        ]
        for row in range(8)
    ]
    body = plain_page.searched(head, rows, caption="Samples.")
    page = run_page(CONFIG, Scores({}), "words " * 60, {"forget": 3}, more=[plain_page.section("Changed", body)])
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page)
    return file


def sheet(*written):
    count = len(written)
    return AnswerSheet(
        questions=[f"question <{number}>" for number in range(count)],
        answers=["truth"] * count,
        written=list(written),
        log_probabilities=[[-0.5]] * count,
        right=[[True]] * count,
        expected=[[-1.0]] * count,
        spread=[[0.5]] * count,
    )


def test_answers_that_changed_come_first_and_are_escaped(monkeypatch):
    monkeypatch.setattr("unweave.runs.answers_table.MOST_QUESTIONS", 2)
    before, after = sheet("same", "old", "same"), sheet("same", "<i>new</i>", "same")
    section = answers_section({"forget": before}, {"forget": after})
    rows = section.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:-1]
    assert len(rows) == 2
    assert re.findall(r'data-column="([\w ]+)"[^>]*>(.*?)</t', rows[0]) == [
        ("questions of", "forget"),
        ("question", "question &lt;1&gt;"),
        ("true answer", "truth"),
        ("before", "old"),
        ("after", "&lt;i&gt;new&lt;/i&gt;"),
    ]
    assert "1 of 3 questions changed" in section
    assert "answers.json has all" in section


def test_no_text_hides_or_reorders_what_stands_around_it():
    forged = "kept: no\u202e\x1b[2J\u2028"
    parts = [plain_page.words(forged), plain_page.points([forged]), plain_page.section(forged, plain_page.words("x"))]
    parts.append(answers_section({"forget": sheet("old")}, {"forget": sheet(forged)}))
    page = plain_page.page(forged, parts)
    assert not set(page) & set("\u202e\x1b\u2028")
    assert page.count("kept: no\\u202e\\x1b[2J\\u2028") >= 5


def test_models_that_wrote_nothing_have_no_section():
    assert answers_section({"forget": sheet()}, {"forget": sheet()}) == ""
    assert "(nothing)" in answers_section({"forget": sheet("a")}, {"forget": sheet("")})


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_samples_can_be_searched_and_nothing_is_wider_than_the_screen(page_browser, file, width, scheme):
    with page_browser.shown(file, width=width, scheme=scheme) as page:
        assert page.too_wide() == []
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        said = (
            "return [document.querySelector('[role=status]').textContent, "
            "[...document.querySelectorAll('.searched tbody tr')].filter((r) => r.getClientRects().length).length]"
        )
        assert page.run(said) == ["8 of 8 shown.", 8]
        page.run("""const box = document.querySelector("[type=search]"); box.value = "ON <B>2";
            box.dispatchEvent(new Event("input"))""")
        assert page.run(said) == ["1 of 8 shown.", 1]
        page.run("""const box = document.querySelector("[type=search]"); box.value = "";
            box.dispatchEvent(new Event("input")); const menu = document.querySelector(".searched select");
            menu.value = "adjacent"; menu.dispatchEvent(new Event("change"))""")
        assert page.run(said) == ["5 of 8 shown.", 5]
        assert page.run("return [...document.querySelectorAll('th')].every((cell) => cell.scope)")
        assert page.run("return [...document.querySelectorAll('nav a')].every((a) => document.querySelector(a.hash))")
        assert page.log("browser") == []


@needs_browser
def test_paper_shows_the_whole_run(page_browser, file):
    with page_browser.shown(file, width=703) as page:
        page.develop("Emulation.setEmulatedMedia", media="print")
        assert page.too_wide() == []
        page.develop("Emulation.setEmulatedMedia", media="")
        assert 1 <= page.sheets() <= 4
