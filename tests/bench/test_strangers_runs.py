"""The suite's commands on a tiny task; the judgement half opens twice at most, and only with a reason."""

from __future__ import annotations

import dataclasses
import json

import bench.strangers.looks as looks
import numpy as np
import pytest
import torch
from bench.strangers import marks, oracle, tasks
from bench.strangers.__main__ import main
from bench.strangers.data import Data, Part
from bench.strangers.halves import halves_of_test
from bench.strangers.originals import Case
from bench.strangers.summary import table, totals
from bench.strangers.training import Recipe

from unweave.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore:Only .* adjacent samples:unweave.errors.RunWarning")
NAME = "blobs-mlp-cluster"
JUDGED = "cancer-mlp-20"


def clusters(_=None):
    """Return six clusters with three labels, far apart."""
    draw = np.random.default_rng(0)
    centres = 6 * draw.normal(size=(6, 4))
    parts = []
    for count in (40, 20):
        fine = np.repeat(np.arange(6), count)
        points = (centres[fine] + draw.normal(size=(len(fine), 4))).astype(np.float32)
        parts.append(Part.of(torch.from_numpy(points), fine % 3, fine.astype(str)))
    return Data(*parts)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    threads = torch.get_num_threads()
    recipe = Recipe(optimizer="adam", learning_rate=1e-2, epochs=6, batch_size=16)
    for name, mark in ((NAME, marks.named("4")), (JUDGED, marks.some(20))):
        small = dataclasses.replace(tasks.TASKS[name], read=clusters, recipe=recipe, mark=mark)
        monkeypatch.setitem(tasks.TASKS, name, small)
    monkeypatch.setattr(looks, "FILE", tmp_path / "looks.json")
    yield tmp_path
    torch.set_num_threads(threads)


def test_a_task_is_trained_tried_and_shown(tiny, capsys):
    cache = ["--cache", str(tiny)]
    assert main(["train", NAME, "--seeds", "1", *cache]) == 0
    assert "train 40/40/160  test 20/20/80" in capsys.readouterr().out
    assert main(["try", NAME, "--seeds", "1", "--method", "ft", "--set", "learning_rate=0.01", *cache]) == 0
    assert main(["try", NAME, "--seeds", "1", "--method", "ga", "--set", "epochs=-1", *cache]) == 0
    row, failed = (json.loads(line) for line in (tiny / "tries.jsonl").read_text().splitlines())
    assert row["before"]["train forget"] == 1
    assert row["retrained"]["train forget"] < 0.5
    assert row["training"] == 240 * 6
    assert row["share"] == round(row["gradients"] / row["training"], 4)
    assert failed["error"] == "UsageError"
    assert "epochs is -1" in failed["message"]
    capsys.readouterr()
    assert main(["table", *cache]) == 0
    shown = capsys.readouterr().out
    assert "== ft learning_rate=0.01" in shown
    assert f"{NAME:<26} 0  UsageError" in shown


def test_forecasts_are_compared_with_retrained_models(tiny, capsys):
    cache = ["--cache", str(tiny)]
    assert main(["forecast", NAME, "--seeds", "2", *cache]) == 0
    rows = [json.loads(line) for line in (tiny / "forecasts.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows] == [0, 1]
    mean = sum(abs(row["forecast"] - row["retrained"]) for row in rows) / 2
    assert f"mean error {mean:.1%}" in capsys.readouterr().out


def test_the_goal_retrain_is_compared_with_retrained_models(tiny, monkeypatch, capsys):
    small = dataclasses.replace(tasks.TASKS[NAME], mark=marks.some(20))
    monkeypatch.setitem(tasks.TASKS, NAME, small)
    monkeypatch.setattr(type(small), "request", "random 20")
    assert main(["unseen", NAME, "--seeds", "2", "--cache", str(tiny)]) == 0
    rows = [json.loads(line) for line in (tiny / "unseen.jsonl").read_text().splitlines()]
    assert [(row["seed"], row["aim"]) for row in rows[:3]] == [
        (0, "original"),
        (0, "held-out data"),
        (0, "a list of its losses"),
    ]
    assert len(rows) == 6
    assert rows[0]["share"] == 0
    assert all(row["losses retrained"] == rows[0]["losses retrained"] >= 0 for row in rows)


def test_the_halves_of_the_test_data_are_about_equal_and_share_nothing():
    first, second = halves_of_test(1000)
    assert len({*first, *second}) == 1000
    assert 450 < len(first) < 550
    assert halves_of_test(10)[0].tolist() == [place for place in first if place < 10]


def test_the_oracle_is_chosen_on_one_half_and_judged_on_the_other(tiny, capsys):
    command = ["oracle", NAME, "--seeds", "2", "--trials", "2", "--methods", "adaptive,ft", "--cache", str(tiny)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    rows = [json.loads(line) for line in (tiny / "oracle.jsonl").read_text().splitlines()]
    tuned = [row for row in rows if row["method"]]
    assert {(row["method"], row["number"]) for row in tuned if row["seed"] == 0} == {
        (method, number) for method in ("adaptive", "ft") for number in range(2)
    }
    assert not any(row["valid"] for row in tuned if row["method"] == "ft"), "fine-tuning does not forget"
    best = oracle.best_of(row for row in rows if row["seed"] == 0 and row["method"])
    assert best["method"] == "adaptive"
    default = next(row for row in rows if row["method"] is None and row["seed"] == 0)
    lacks = 100 * (best["second adjacent"] - default["second adjacent"])
    assert f"{NAME:<26}  0  regret {lacks:>6.1f}" in shown
    assert "regret over 2 cells" in shown
    assert main(command) == 0
    assert len((tiny / "oracle.jsonl").read_text().splitlines()) == len(rows), "nothing is run twice"


def test_trials_in_two_processes_are_those_of_one(tmp_path, capsys):
    command = ["choose", "digits-mlp-three", "--methods", "delete,ssd", "--trials", "2", "--cache", str(tmp_path)]
    files = {jobs: tmp_path / f"{jobs}.jsonl" for jobs in ("1", "2")}
    for jobs, file in files.items():
        assert main([*command, "--jobs", jobs, "--out", str(file)]) == 0
    one, two = (
        {(row["method"], row["number"]): row for row in map(json.loads, file.read_text().splitlines())}
        for file in files.values()
    )
    assert one.keys() == two.keys() == {(method, number) for method in ("delete", "ssd") for number in range(2)}
    for key, row in one.items():
        assert {**row, "seconds": 0} == {**two[key], "seconds": 0}
    shown = capsys.readouterr().out
    assert "ssd          regret" in shown
    assert shown.splitlines()[-1].startswith("chosen: ")
    told = json.loads(files["2"].with_suffix(".provenance.jsonl").read_text())
    assert {row["commit"] for row in two.values()} == {told["commit"]}


def test_when_a_process_cannot_work_the_command_says_so_and_keeps_what_it_has(tmp_path, capsys):
    more = ["--data", str(tmp_path), "--cache", str(tmp_path), "--jobs", "2", "--trials", "1", "--methods", "ssd"]
    assert main(["choose", "clinc-bag-wrong", *more]) == 1
    assert "clinc150" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--jobs", "0"], ["--trials", "0"], ["--minutes", "0"], ["--methods", "nothing"]])
def test_wrong_numbers_of_a_search_are_refused(tiny, wrong, capsys):
    assert main(["choose", NAME, "--cache", str(tiny), *wrong]) == 2
    assert "error: " in capsys.readouterr().err
    assert not (tiny / "choice.jsonl").exists()


def test_a_trial_that_recognises_more_unseen_data_than_a_retrained_model_is_not_valid():
    row, retrained = {"train forget": 0.0, "test forget": 0.4}, {"test forget": 0.3}
    assert not oracle.is_valid(row, retrained)
    assert oracle.is_valid(row | {"test forget": 0.34}, retrained)
    assert oracle.is_valid(row | {"test forget": None}, retrained), "random samples have no counterpart in test data"
    assert not oracle.is_valid(row | {"test forget": 0.2, "train forget": 0.02}, retrained)


def test_trials_are_the_same_each_time_and_lie_in_their_space():
    some = [oracle.drawn("adaptive", number) for number in range(20)]
    assert some == [oracle.drawn("adaptive", number) for number in range(20)]
    assert some[0] == {}
    assert all(0.006 <= one["learning_rate"] <= 0.6 for one in some[1:])
    assert {one["margin"] for one in some[1:]} == {0.5, 1.0, 2.0, 4.0}


def test_trials_lie_around_the_default_that_a_model_of_the_users_own_gets(monkeypatch):
    from unweave.methods import FineTune

    monkeypatch.setattr(FineTune, "profiles", {"first": {}, "own": {"learning_rate": 1e-6}})
    monkeypatch.setattr(FineTune, "on_own_models", "own", raising=False)
    assert all(oracle.drawn("ft", number)["learning_rate"] < 1e-4 for number in range(1, 9))


def test_a_kept_model_is_loaded_and_a_changed_recipe_is_trained_again(tiny):
    (first, second), changed = (case(tiny) for _ in range(2)), case(tiny, epochs=1)
    assert first.original.gradients == 1440
    written = (tiny / "models" / NAME / "seed-0" / "original.safetensors").stat().st_mtime_ns
    for name, value in second.original.model.state_dict().items():
        assert torch.equal(value, first.original.model.state_dict()[name])
    assert (tiny / "models" / NAME / "seed-0" / "original.safetensors").stat().st_mtime_ns == written
    assert changed.original.gradients == 240


def case(cache, **recipe):
    task = tasks.find_task(NAME)
    task = dataclasses.replace(task, recipe=dataclasses.replace(task.recipe, **recipe))
    return Case(task, 0, data=None, cache=cache)


@pytest.mark.parametrize("command", ["train", "try"])
def test_the_judgement_half_stays_shut(tiny, capsys, command):
    assert main([command, NAME, JUDGED, "--seeds", "1", "--cache", str(tiny)]) == 2
    assert "cancer-mlp-20 is in the judgement half" in capsys.readouterr().err
    assert not (tiny / "models").exists()
    assert not (tiny / "looks.json").exists()


def test_there_are_two_looks_and_one_may_take_several_commands(tiny, monkeypatch, capsys):
    monkeypatch.setenv("UNWEAVE_COMMIT", "a" * 40)
    cache = ["--seeds", "1", "--cache", str(tiny)]
    for reason in ("frozen", "frozen", "repaired"):
        assert main(["train", JUDGED, "--look", reason, *cache]) == 0
    written = json.loads((tiny / "looks.json").read_text())["looks"]
    assert [look["reason"] for look in written] == ["frozen", "repaired"]
    assert {look["commit"] for look in written} == {"a" * 40}
    assert main(["train", JUDGED, "--look", "again", *cache]) == 2
    assert "looked at 2 times: frozen; repaired" in capsys.readouterr().err


def test_a_look_judges_a_commit(tiny, monkeypatch):
    monkeypatch.setenv("UNWEAVE_COMMIT", "a" * 40 + "+")
    with pytest.raises(UsageError, match="Commit them first"):
        looks.require_look([tasks.find_task(JUDGED)], "frozen", {})


def test_random_samples_have_no_counterpart_in_test_data_but_neighbours(tiny):
    found = Case(tasks.find_task(JUDGED), 0, data=None, cache=tiny)
    assert len(found.train.forget) == 20
    assert len(found.test.forget) == 0
    assert 0 < len(found.test.adjacent) < 120


def test_marks_change_what_they_are_about_and_nothing_else():
    data = clusters()
    found = marks.wrong(0.1)(data)
    assert found.train.marked.sum() == 24
    assert (found.train.labels != data.train.labels).numpy().tolist() == found.train.marked.tolist()
    assert not found.test.marked.any()
    assert marks.some(0.05)(data).train.marked.sum() == 12
    assert (marks.dark(0.25)(data).train.marked.sum(), data.train.marked.sum()) == (60, 0)
    with pytest.raises(ValueError, match="no class 'x'"):
        marks.named("x")(data)


def test_totals_count_what_misses_a_target():
    row = {"task": "a-mlp-x", "request": "class", "seed": 0, "method": None, "settings": {}, "error": None}
    row |= {"warnings": [], "share": 0.4, "training": 2_000_000, "cpu_seconds": 1.0}
    six = {"train forget": 1.0, "test forget": 1.0, "test adjacent": 0.9, "test remote": 0.8}
    row |= {"before": six, "after": six | {"train forget": 0.02, "test forget": 0.3, "test adjacent": 0.8}}
    row["retrained"] = six | {"test forget": 0.2}
    other = row | {"seed": 1, "after": six | {"train forget": 0.01, "test forget": 0.25}}
    found = totals([row, other, {**row, "seed": 2, "error": "CollapseError"}])
    assert found["errors"] == 1
    assert found["not forgotten"] == ["a-mlp-x/0"]
    assert found["test forget above a retrained model's + 5"] == ["a-mlp-x/0"]
    assert found["points of adjacent test accuracy lost"] == "median 5.00, worst 10.00"
    assert found["largest share where training took a million"] == 0.4
    assert "a-mlp-x" in table([row, other])
