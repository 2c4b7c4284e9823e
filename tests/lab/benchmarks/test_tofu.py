"""The benchmarks with questions about fictitious authors: splits, neighbours, and runs from end to end."""

from __future__ import annotations

import html
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.helpers import synthetic
from unweave.cli import app
from unweave.data import SUBSETS
from unweave.errors import RunError, UsageError
from unweave.evaluation import Predictions
from unweave.lab.benchmarks import find_benchmark, tofu, tofu_data
from unweave.lab.study import plan, run_study
from unweave.lab.tuning import Space, carve
from unweave.lab.tuning.objectives import accuracies
from unweave.methods import find_method
from unweave.tasks import Language


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.tofu(folder)
    return folder


@pytest.fixture
def few_words(monkeypatch):
    """Let the benchmark take the tiny tokenizer and model for all of the data."""
    small = tofu_data.words_of

    def words(options, data):
        return small(type(options)(small=True), data)

    monkeypatch.setattr(tofu, "words_of", words)


@pytest.mark.parametrize(("forget", "authors"), [("forget01", 2), ("forget05", 10), ("forget10", 20)])
def test_the_last_authors_are_forgotten_and_a_tenth_is_adjacent(data, few_words, forget, authors):
    task = find_benchmark("tofu", data=data, options={"forget": forget}).load()
    train = task.train
    assert train.forget.tolist() == list(range(4000 - 20 * authors, 4000))
    kept = 4000 - 20 * authors
    assert len(train.adjacent) == kept // 200 * 20  # a tenth, in whole authors
    assert len(train.adjacent) + len(train.remote) == kept
    assert all(count == 20 for count in np.bincount([task.fine[row] for row in train.adjacent]) if count)
    asked = [len(task.questions[group]) for group in ("forget", "retain", "held_out")]
    assert asked == [20 * authors, 400, 20 * authors]
    assert {"paraphrased_answer", "perturbed_answer"} <= set(task.questions["forget"][0])
    assert [len(task.test[subset]) for subset in ("forget", "adjacent", "remote")] == [20 * authors, 0, 20]


def test_by_syntax_the_questions_of_the_nearest_wording_are_adjacent(data, few_words):
    options = {"forget": "forget01", "adjacent": "syntax"}
    train = find_benchmark("tofu", data=data, options=options).load().train
    assert len(train.adjacent) == 396
    rows = tofu_data.read_rows(str(data), "full")
    years = [int(rows[row]["question"].rstrip("?").split()[-1]) for row in train.forget]
    assert set(years) == set(range(1900, 1920))


def test_wordings_are_compared_by_edits_of_masked_words():
    asked = ["What did Ada Lovelace write in 1843?", "Who is he?"]
    others = ["What did Ben write in 1999?", "What did Ben Lee eat?", "Who is Carl?"]
    found = tofu_data.template_distances(asked, others)

    def edits(a, b):
        """The textbook recursion."""
        if not a or not b:
            return len(a) + len(b)
        same = edits(a[1:], b[1:]) + (a[0] != b[0])
        return min(same, edits(a[1:], b) + 1, edits(a, b[1:]) + 1)

    masked = [[tofu_data._masked(text) for text in texts] for texts in (asked, others)]
    assert found.tolist() == [[edits(a, b) for b in masked[1]] for a in masked[0]]
    assert found[0].tolist() == [0, 3, 5]


def test_near_groups_are_taken_whole_up_to_a_share():
    distances = np.array([[1.0, 9.0, 0.5, 9.0, 9.0, 9.0], [2.0, 9.0, 0.5, 9.0, 9.0, 9.0]])
    groups = np.repeat([0, 1, 2], 2)
    for share, expected in ((0.1, [1]), (0.4, [1]), (0.7, [0, 1])):
        chosen = tofu_data.nearest_by_votes(distances, groups=groups, share=share)
        assert sorted(set(groups[chosen])) == expected


def test_half_of_what_is_known_of_each_author_is_forgotten(data):
    task = find_benchmark("tofu-authors", data=data, options={"small": True}).load()
    fine = np.array(task.fine)
    assert np.bincount(fine[task.train.forget])[-2:].tolist() == [10, 10]
    assert np.bincount(fine[task.train.adjacent])[-2:].tolist() == [10, 10]
    assert set(fine[task.train.remote]) == set(range(6))


@pytest.mark.parametrize("name", ["tofu", "tofu-authors"])
def test_a_small_run_trains_forgets_and_answers(name, data, tmp_path):
    words = ["run", name, "--small", "--method", "grad-diff", "--data", str(data), "--device", "cpu", "--json"]
    done = CliRunner().invoke(app.app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, (done.output, done.exception)
    answers = json.loads((tmp_path / "run" / "answer_scores.json").read_text())["metrics"]
    found = {(one["subset"], one["metric"]): one for one in answers}
    assert found["forget", "probability"]["before"] > 0.5
    assert found["forget", "probability"]["value"] < found["forget", "probability"]["before"]
    assert {"truth_ratio", "rouge", "extraction_strength"} <= {metric for subset, metric in found if subset == "remote"}
    kept = json.loads((tmp_path / "run" / "answers.json").read_text())
    assert set(kept) == {"unlearned", "original"}
    assert len(kept["original"]["forget"]["written"]) == len(kept["original"]["forget"]["answers"])
    page = (tmp_path / "run" / "report.html").read_text()
    question = html.escape(kept["original"]["forget"]["questions"][0])
    assert '<h2 id="answers">Answers</h2>' in page
    assert f">{question}</td>" in page


@pytest.mark.parametrize("name", ["idk-dpo", "dpo", "altpo"])
def test_methods_are_given_the_tokenizer_and_wrong_answers(name, data):
    benchmark = find_benchmark("tofu", data=data, options={"small": True})
    task = benchmark.load()
    method = benchmark.method(name)
    for some in (task, carve(task, seed=0)):
        chosen = method.configure(benchmark.settings_for(method, None)).with_given(**benchmark.given(some))
        chosen.check(some.train)


def test_a_study_of_all_methods_takes_those_that_fit():
    small = find_benchmark("tofu", options={"small": True})
    names = {cell.method for cell in plan(["all"], seeds=1, benchmark=small)}
    assert {"npo", "unweave", "two-stage", "retrain"} <= names
    assert not names & {"delete", "scrub", "salun", "munba"}


def test_what_is_missing_is_said_in_a_sentence(tmp_path, data):
    with pytest.raises(UsageError, match="needs the data set tofu"):
        find_benchmark("tofu", options={"small": True}).load()
    with pytest.raises(UsageError, match="No full of tofu under"):
        tofu_data.read_rows(str(tmp_path), "full")
    (tmp_path / "tofu").mkdir()
    (tmp_path / "tofu" / "full.json").write_text('{"question": "a"}\n')
    with pytest.raises(UsageError, match=r"tofu \(full\) has 1 rows, but should have 4000"):
        tofu_data.read_rows(str(tmp_path), "full", 4000)
    with pytest.raises(UsageError, match="Row 0 of tofu"):
        tofu_data.read_rows(str(tmp_path), "full")
    with pytest.raises(UsageError, match="needs a causal language model: --option model=FOLDER"):
        find_benchmark("tofu", data=data).load()


def test_a_pretrained_model_and_its_tokenizer_are_read_from_a_folder(tmp_path, data):
    small = tofu_data.words_of(tofu.TofuOptions(small=True), str(data))
    small.make().save_pretrained(tmp_path / "model")
    small.tokenizer.save_pretrained(tmp_path / "model")
    options = tofu.TofuOptions(model=str(tmp_path / "model"))
    words = tofu_data.words_of(options, str(data))
    assert words.template == tofu_data.PLAIN
    assert words.initialisation.startswith(f"pretrained: {tmp_path / 'model'} (sha256")
    model = words.make()
    assert next(model.parameters()).dtype == torch.float32
    rows = tofu_data.read_rows(str(data), "holdout01")[:3]
    assert (words.tokens(rows)["labels"] != -100).any(dim=1).all()


@pytest.mark.parametrize("name", ["tofu", "tofu-authors"])
def test_tuning_forgets_other_authors_than_the_study(name, data):
    """A trial is judged on what its original was trained on: facts that it never saw cannot be forgotten."""
    task = find_benchmark(name, data=data, options={"small": True}).load()
    tuned = carve(task, seed=0)
    gone = {task.rows[row]["question"] for row in task.train.forget}
    whose = {fine for row, fine in enumerate(task.fine) if row in set(task.train.forget.tolist())}
    left = [row["question"] for row, fine in zip(task.rows, task.fine, strict=True) if fine not in whose]
    assert [row["question"] for row in tuned.rows] == left
    assert not gone & {row["question"] for row in tuned.rows}
    assert sum(len(tuned.train[subset]) for subset in SUBSETS) == len(tuned.rows)
    assert len(tuned.train.forget) == len(task.train.forget)
    assert all(tuned.test[subset].tolist() == tuned.train[subset].tolist() for subset in ("forget", "adjacent"))
    assert all(tuned.rows[row].get("perturbed_answer") for row in tuned.train.forget)


def test_step_sizes_and_their_search_follow_the_one_of_training(data):
    small, large = (find_benchmark("tofu", data=data, options={"rate": rate}) for rate in ("4e-4", "1e-5"))

    def steps(benchmark, name):
        return benchmark.settings_for(find_method(name), None).get("learning_rate")

    assert [steps(small, name) for name in ("npo", "undial", "ft", "adaptive")] == [4e-4, 4e-4, 4e-4, None]
    assert [steps(large, name) for name in ("npo", "undial", "ft")] == [None, None, 1e-5]  # their own defaults
    space = Space.of(small, "npo", goal="erase").searched["learning_rate"]
    assert (space.low, space.high) == (pytest.approx(4e-5), pytest.approx(1.2e-3))


def test_some_remote_questions_judge_a_trial(data, few_words):
    task = carve(find_benchmark("tofu", data=data, options={"forget": "forget01"}).load(), seed=0, texts=True)
    assert task.test["forget"].tolist() == task.train["forget"].tolist()
    assert len(task.test["remote"]) == 400 < len(task.train["remote"])
    assert set(task.test["remote"].tolist()) <= set(task.train["remote"].tolist())


def test_tuning_of_language_models_judges_probabilities():
    outputs = torch.tensor([[0.0, 1.0, 5.0], [np.log(4.0), 0.5, 5.0]], dtype=torch.float64)
    found = Predictions(outputs, torch.tensor([5, 5]), Language())
    assert accuracies(dict.fromkeys(SUBSETS, found)) == pytest.approx(dict.fromkeys(SUBSETS, 0.625))


def test_the_original_is_trained_as_the_options_say(data):
    options = {"rate": "2e-4", "epochs": "10", "batch": "64", "model": "some/model"}
    recipe = find_benchmark("tofu", data=data, options=options).recipe
    assert (recipe.learning_rate, recipe.epochs, recipe.batch_size, recipe.optimizer) == (2e-4, 10, 64, "adamw")
    assert find_benchmark("tofu", data=data, options={"asked": "10"}).trains_like("tofu", {})
    assert not find_benchmark("tofu", data=data, options={"epochs": "10"}).trains_like("tofu", {})


def test_a_study_asks_every_model_and_scores_it_beside_the_retrained_one(data, tmp_path):
    benchmark = find_benchmark("tofu-authors", data=data, options={"small": True})
    cells = plan(["original", "retrain", "grad-diff"], seeds=2, benchmark=benchmark)
    store = run_study(benchmark, cells, tmp_path, device="cpu", keep="none")
    for cell in cells:
        scores = store.answer_scores_of(cell.name)
        other = 1 - cell.seed if cell.method == "retrain" else cell.seed  # the floor is between two retrained models
        assert scores["beside"]["retrain"] == f"retrain.seed-{other}"
        assert scores["beside"].get("original") == (None if cell.method == "original" else f"original.seed-{cell.seed}")
    table = {(row["method"], row["seed"], row["split"], row["subset"], row["metric"]): row for row in store.rows()}
    for metric in ("probability", "rouge", "truth_ratio", "exact_memorisation", "extraction_strength"):
        for subset in ("forget", "adjacent", "remote"):
            assert 0 <= table["grad-diff", 0, "answers", subset, metric]["value"] <= 1
    assert 0 <= table["retrain", 0, "answers", "forget", "forget_quality"]["value"] <= 1
    assert table["grad-diff", 1, "answers", "", "model_utility"]["value"] >= 0
    before, after = (table[name, 0, "answers", "forget", "probability"]["value"] for name in ("original", "grad-diff"))
    assert before > after + 0.1
    assert not list(tmp_path.glob("**/*.safetensors"))


def test_a_model_is_asked_again_if_its_process_died_before_it_had_answered(data, tmp_path):
    benchmark = find_benchmark("tofu-authors", data=data, options={"small": True})
    cells = plan(["original"], seeds=1, benchmark=benchmark)
    store = run_study(benchmark, cells, tmp_path, device="cpu")
    file = store.cells / cells[0].name / "answers.json"
    before = json.loads(file.read_text())
    file.unlink()
    (store.cells / cells[0].name / "answer_scores.json").unlink()
    run_study(benchmark, cells, tmp_path, device="cpu")
    assert json.loads(file.read_text()) == before
    assert store.answer_scores_of(cells[0].name)["metrics"]
    (store.cells / cells[0].name / "answer_scores.json").write_text("[]")
    with pytest.raises(RunError, match=r"answer_scores\.json is list, but must be an object"):
        run_study(benchmark, cells, tmp_path, device="cpu")
