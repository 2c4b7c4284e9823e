"""A request file, a run's folder or MODULE:FUNCTION, wherever a benchmark is named."""

from __future__ import annotations

import json
import re
import sys
import types

import pytest
import torch
from torch import nn

from tests.helpers.own_files import sentences, write_table, write_text_checkpoint
from unweave import Split, UsageError
from unweave.lab.benchmarks import find_benchmark

REQUEST = """
model: ckpt
train: train.parquet
test: test.parquet
forget: person_id = 3
adjacent: same-label
device: cpu
"""
RECIPE = "recipe: {epochs: 2, learning_rate: 1e-2, batch_size: 16}\n"
QUICK = ["--method", "ga", "--set", "learning_rate=1e-2", "--set", "epochs=2", "--no-guard"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own-task")
    write_text_checkpoint(folder / "ckpt")
    write_table(folder / "train.parquet", sentences())
    write_table(folder / "test.parquet", sentences(48, seed=1))
    (folder / "plain.yaml").write_text(REQUEST)
    (folder / "request.yaml").write_text(REQUEST + RECIPE)
    return folder


@pytest.fixture
def at_home(home, monkeypatch, tmp_path):
    for file in home.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(folder):
    from pyarrow import parquet

    return parquet.read_table(folder / "results.parquet").to_pylist()


def accuracy(rows, method):
    return next(
        row["value"]
        for row in rows
        if (row["method"], row["split"], row["subset"], row["metric"]) == (method, "train", "remote", "accuracy")
    )


def test_a_study_of_a_request_begins_with_its_checkpoint_and_retrains_by_its_recipe(at_home, shell):
    command = ["study", "request.yaml", "--methods", "original,retrain,ga", "--seeds", "1", "--device", "cpu"]
    done = shell(*command, "--out", "study")
    assert done.code == 0, done.err
    assert "unweave report study" in done.out
    rows = rows_of(at_home / "study")
    assert {row["method"] for row in rows} == {"original", "retrain", "ga"}
    assert accuracy(rows, "original") == 1.0
    assert accuracy(rows, "retrain") < 1.0  # two epochs from random weights
    other = shell("study", "plain.yaml", *command[2:], "--out", "study")
    assert (other.code, "holds a study of request" in other.err) == (2, True)
    assert "training the original" not in done.err


def test_the_goal_retrain_trains_a_reference_by_the_recipe(at_home, shell):
    quick = ["--goal", "retrain", "--set", "epochs=1", "--set", "least_steps=2", "--set", "learning_rate=1e-5"]
    looked = shell("inspect", "request.yaml", *quick)
    assert looked.code == 0, looked.out
    done = shell("unlearn", "request.yaml", *quick, "--no-guard", "--out", "run")
    assert done.code == 0, done.err
    cost = json.loads((at_home / "run" / "run.json").read_text())["cost"]
    expected = re.search(r"(\d+) sample gradients \(retrain 4 steps, constrained descent 2 steps\)", looked.out)
    assert int(expected.group(1)) == pytest.approx(cost["sample_gradients"], rel=0.1)  # the last batch is smaller


def test_without_a_recipe_nothing_is_retrained(at_home, shell):
    done = shell("study", "plain.yaml", "--methods", "original,retrain,ga", "--seeds", "1", "--out", "s", "--json")
    assert done.code == 0, done.err
    assert "has no training recipe" in done.err
    assert json.loads(done.out)["cells"] == json.loads(done.out)["done"] == 2
    task = find_benchmark("plain.yaml")
    with pytest.raises(UsageError, match=r"Retraining needs models that are trained anew.*recipe: \{epochs"):
        task.train(task.load(), seed=0, subsets=("adjacent", "remote"))


def test_settings_are_tuned_on_a_held_out_part_and_used_in_a_study(at_home, shell):
    done = shell("tune", "plain.yaml", "--methods", "ga", "--trials", "2", "--out", "tuning", "--device", "cpu")
    assert done.code == 0, done.err
    assert "unweave study plain.yaml" in done.out
    assert "training a model" not in done.err  # without a recipe the checkpoint is taken
    given = ["--profiles", "tuned", "--tuned", "tuning", "--methods", "original,ga", "--seeds", "1"]
    used = shell("study", "plain.yaml", *given, "--out", "tuned", "--device", "cpu")
    assert used.code == 0, used.err
    assert {row["profile"] for row in rows_of(at_home / "tuned") if row["method"] == "ga"} == {"tuned"}


def test_a_runs_folder_remembers_its_request(at_home, shell):
    assert shell("unlearn", "request.yaml", *QUICK, "--out", "run").code == 0
    scores = json.loads((at_home / "run" / "scores.json").read_text())
    again = shell("evaluate", "run", "--device", "cpu", "--json")
    assert again.code == 0, again.err
    found = json.loads(again.out)
    for metric in scores["metrics"]:
        if metric["value"] is not None:
            mine = next(
                one for one in found["metrics"] if all(one[key] == metric[key] for key in ("metric", "split", "subset"))
            )
            assert (mine["value"], mine["before"]) == (
                pytest.approx(metric["value"], abs=1e-6),
                pytest.approx(metric["before"], abs=1e-6),
            )
    shown = shell("report", "run")
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "Page: run/report.html")


def test_an_audit_trains_references_and_shadows_by_the_recipe(at_home, shell):
    write_table(at_home / "large.parquet", sentences(240))
    write_table(at_home / "large-test.parquet", sentences(240, seed=1))
    (at_home / "audit.yaml").write_text(
        REQUEST.replace("train.parquet", "large.parquet").replace("test.parquet", "large-test.parquet")
        + RECIPE.replace("epochs: 2", "epochs: 1")
    )
    done = shell(
        "audit", "ckpt", "--benchmark", "audit.yaml", "--shadows", "4", "--retrain", "1", "--device", "cpu", "--json"
    )
    assert done.code == 0, done.err
    metrics = json.loads(done.out)["metrics"]
    found = {metric["metric"]: metric for metric in metrics if metric["subset"] == "forget" and metric["split"]}
    assert found["accuracy"]["reference"] is not None
    assert found["mia_ulira_auc"]["value"] is not None


@pytest.fixture
def code(monkeypatch):
    torch.manual_seed(0)
    data = (torch.randn(60, 5), torch.arange(60) % 3)
    split = Split(data, forget=range(6), adjacent=range(6, 20))
    module = types.ModuleType("my_task")
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    module.task = lambda: (model, split, None)
    monkeypatch.setitem(sys.modules, "my_task", module)
    return module


def test_a_function_is_one_way_to_name_a_task(code, at_home, shell):
    command = ["study", "my_task:task", "--methods", "original,ga", "--seeds", "1", "--out", "own", "--device", "cpu"]
    done = shell(*command)
    assert done.code == 0, done.err
    assert {row["method"] for row in rows_of(at_home / "own")} == {"original", "ga"}
    assert {row["split"] for row in rows_of(at_home / "own")} <= {"train", "", None}
    wrong = shell("study", "my_task:other", *command[2:])
    assert (wrong.code, "my_task:other cannot be called" in wrong.err) == (2, True)


def test_a_folder_that_names_code_is_not_trusted(at_home, monkeypatch, shell):
    module = types.ModuleType("my_own")
    module.model = lambda: nn.Linear(1, 3)
    monkeypatch.setitem(sys.modules, "my_own", module)
    rows = [{"id": row, "x": float(row), "label": row % 3} for row in range(30)]
    write_table(at_home / "numbers.parquet", rows)
    given = ["--model", "my_own:model", "--train", "numbers.parquet", "--forget", "id < 4", "--adjacent", "id < 9"]
    assert shell("unlearn", *given, *QUICK, "--device", "cpu", "--out", "run").code == 0
    for words in (["evaluate", "run"], ["unlearn", "--after", "run", "--forget", "id = 9", "--out", "next"]):
        refused = shell(*words)
        assert refused.code == 2
        assert "names code (my_own:model), and the folder may come from a stranger" in " ".join(refused.err.split())
    trusted = shell("evaluate", "run", "--benchmark", "run/request.yaml", "--device", "cpu", "--json")
    assert trusted.code == 0, trusted.err
    assert json.loads(trusted.out)["train"]["forget"]["samples"] == 4


def test_options_are_for_benchmarks(at_home, shell):
    refused = shell("study", "plain.yaml", "--small", "--out", "small")
    assert (refused.code, "is a task of your own and has no options (small)" in refused.err) == (2, True)
