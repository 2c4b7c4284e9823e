from __future__ import annotations

import copy
import json
import os

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from unweave import Compute, Note, OwnLoss, RunError, Split, UsageError, evaluate, load_weights, unlearn


def test_the_folder_of_a_run(model, split, data, tmp_path):
    out = tmp_path / "runs" / "first"
    test = Split(data, forget=[0], adjacent=[9], remote=[30])
    result = unlearn(
        model,
        split,
        "two-stage",
        profile="released",
        out=out,
        test=test,
        seed=4,
        alpha=0.75,
        compute=Compute("cpu"),
        callbacks=[Note(note="ü")],
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoints",
        "history.jsonl",
        "model.safetensors",
        "report.html",
        "run.json",
        "scores.json",
        "verdict.md",
    ]
    config = configuration(out)
    assert config["method"] == "two-stage"
    assert config["profile"] == "released"
    assert config["settings"]["alpha"] == 0.75
    assert (config["seed"], config["split"], config["note"]) == (4, split.hash, "ü")
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert rows == result.history.rows
    scores = json.loads((out / "scores.json").read_text())
    assert scores["train"] == result.scores["train"]
    assert scores["test"]["forget"]["samples"] == 1
    assert scores["cost"]["sample_gradients"] == result.cost.sample_gradients
    fresh = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    assert same(weights(load_weights(fresh, out)), weights(result.model))
    assert [path.name for path in out.parent.iterdir()] == ["first"]


def test_the_state_between_the_stages_is_kept(model, split, tmp_path):
    unlearn(
        model,
        split,
        "two-stage",
        profile="released",
        out=tmp_path / "run",
        stage1_learning_rate=1e-2,
        compute=Compute("cpu"),
    )
    between = unlearn(
        model,
        split,
        "two-stage",
        profile="released",
        stage1_learning_rate=1e-2,
        stage2_epochs=0,
        compute=Compute("cpu"),
    ).model
    kept = safetensors.torch.load_file(tmp_path / "run" / "checkpoints" / "01-00000000.safetensors")
    assert torch.equal(kept["model.0.weight"], between[0].weight)


def test_a_folder_that_holds_something_is_refused(model, split, tmp_path):
    (tmp_path / "run").mkdir()
    unlearn(model, split, method="ga", out=tmp_path / "run", compute=Compute("cpu"))  # empty: fine
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UsageError, match="already exists"):
        unlearn(model, split, method="ga", out=tmp_path / "run", compute=Compute("cpu"))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}


def test_a_failed_run_leaves_no_results(model, split, tmp_path):
    with pytest.raises(RunError):
        unlearn(model, split, method="ga", learning_rate=1e20, epochs=50, out=tmp_path / "run", compute=Compute("cpu"))
    assert not (tmp_path / "run").exists()


def test_the_folder_of_a_run_may_be_where_one_is(model, split, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    unlearn(model, split, method="ga", epochs=1, out=".", guard=None, compute=Compute("cpu"))
    assert (tmp_path / "here" / "scores.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_wrong_usage_leaves_nothing_at_all(model, split, tmp_path):
    for wrong in (
        {"method": "nope"},
        {"method": "two-stage", "alpha": 7},
        {"profile": "nope"},
        {"precision": "float3"},
        {"device": "tpu9"},
    ):
        with pytest.raises(UsageError):
            unlearn(model, split, out=tmp_path / "run", **wrong)
    frozen = nn.Linear(5, 3).requires_grad_(False)
    with pytest.raises(UsageError, match="no trainable parameters"):
        unlearn(frozen, split, "two-stage", profile="released", out=tmp_path / "run", compute=Compute("cpu"))
    words = nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True), nn.Linear(4, 3))
    tokens = Split((torch.arange(9)[:, None], torch.arange(9) % 3), forget=[0], adjacent=[1], remote=[2])
    with pytest.raises(UsageError, match="gradients of 0 are sparse"):
        unlearn(words, tokens, "two-stage", profile="released", out=tmp_path / "run", compute=Compute("cpu"))
    outside = Split((torch.zeros(9, 5), torch.full((9,), 8)), forget=[0], adjacent=[1], remote=[2])
    with pytest.raises(UsageError, match="label 8"):
        unlearn(model, outside, "two-stage", profile="released", out=tmp_path / "run", compute=Compute("cpu"))
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_run_is_resumed_or_refused(model, split, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage2

    taken = Stage2.step

    def killed(self, number):
        if number == 3:
            raise KeyboardInterrupt
        return taken(self, number)

    settings = {"stage1_learning_rate": 1e-2, "stage2_adjacent_batch": 4, "compute": Compute("cpu")}
    whole = unlearn(model, split, "two-stage", profile="released", **settings)
    monkeypatch.setattr(Stage2, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", **settings)
    monkeypatch.setattr(Stage2, "step", taken)
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]
    with pytest.raises(UsageError, match="unfinished run"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", **settings)
    with pytest.raises(UsageError, match="started with different values for settings"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", resume=True, **settings, alpha=0.9)
    with pytest.raises(UsageError, match="started with different values for seed"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", resume=True, **settings, seed=9)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].bias[0] += 1e-6
    with pytest.raises(UsageError, match="started with different values for model"):
        unlearn(other, split, "two-stage", profile="released", out=tmp_path / "run", resume=True, **settings)
    resumed = unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", resume=True, **settings)
    assert same(weights(resumed.model), weights(whole.model))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(UsageError, match="no unfinished run"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "other", resume=True, **settings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(model, split, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", compute=Compute("cpu"))


def test_a_file_in_the_way(model, split, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        unlearn(model, split, "two-stage", profile="released", out=tmp_path / "file" / "run", compute=Compute("cpu"))


def test_test_data_is_looked_at_before_the_work(model, split, data, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage1

    monkeypatch.setattr(Stage1, "step", lambda *_: pytest.fail("the work was begun"))
    wide = (torch.zeros(60, 7), data[1])
    for test, message in (
        (data, "test must be a Split of the test data, not tuple"),
        (Split(wide, range(8), range(8, 20)), r"The model cannot take a sample of float32 \(7\)"),
        (Split((data[0], data[1] + 2), range(8), range(8, 20)), "has the label 3, but the model has 3 classes"),
    ):
        with pytest.raises(UsageError, match=message):
            unlearn(
                model, split, "two-stage", profile="released", test=test, out=tmp_path / "run", compute=Compute("cpu")
            )
    assert list(tmp_path.iterdir()) == []


def test_what_the_model_cannot_take_is_said(model, split, data):
    wide = Split((torch.zeros(60, 7), data[1]), range(8), range(8, 20))
    exact = Split((data[0].double(), data[1]), range(8), range(8, 20))
    for wrong, message in ((wide, r"float32 \(7\)"), (exact, r"float64 \(5\)")):
        with pytest.raises(UsageError, match=f"The model cannot take a sample of {message}"):
            unlearn(model, wrong, "two-stage", profile="released", compute=Compute("cpu"))
        with pytest.raises(UsageError, match=f"The model cannot take a sample of {message}"):
            evaluate(model, wrong, compute=Compute("cpu"))
    with pytest.raises(UsageError, match="has the label 9, but the model has 3 classes"):
        evaluate(model, Split((data[0], torch.full((60,), 9)), range(8), range(8, 20)), compute=Compute("cpu"))


@pytest.mark.parametrize("limits", [None, {}])
@pytest.mark.parametrize("method", ["two-stage", "unweave", "ga"])
def test_a_loss_is_one_for_each_sample(model, split, method, limits):
    def mean(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(
        UsageError, match=r"one loss for each of the \d+ samples of a batch, not a tensor of shape \(\)"
    ):
        unlearn(model, split, method, task=OwnLoss(mean), guard=limits, compute=Compute("cpu"))


def test_where_gradients_are_off_nothing_can_be_unlearned(model, split):
    with torch.no_grad(), pytest.raises(UsageError, match="Call unlearn outside of it"):
        unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"))
    with pytest.raises(UsageError, match="seed must be a whole number, not '7'"):
        unlearn(model, split, "two-stage", profile="released", seed="7", compute=Compute("cpu"))


def test_pickled_weights_are_refused(model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(UsageError, match="Pickled weights can run code"):
        load_weights(model, tmp_path / "model.pt")
    with pytest.raises(UsageError, match="cannot be read"):
        load_weights(model, tmp_path / "missing.safetensors")


def test_a_split_without_what_the_method_needs(model, data):
    bare = Split(data, forget=[0], adjacent=[], remote=[1], allow_empty=True)
    with pytest.raises(UsageError, match="two-stage needs adjacent data"):
        unlearn(model, bare, "two-stage", profile="released", compute=Compute("cpu"))
    unlearn(model, bare, method="ga", compute=Compute("cpu"))


def test_tied_weights_are_saved(split, tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
            self.second.weight = self.first.weight

        def forward(self, inputs):
            return self.head(self.second(self.first(inputs)))

    result = unlearn(
        Tied(), split, method="ga", learning_rate=0.1, out=tmp_path / "run", guard=None, compute=Compute("cpu")
    )
    loaded = load_weights(Tied(), tmp_path / "run")
    assert torch.equal(loaded.first.weight, result.model.first.weight)
    assert loaded.first.weight is loaded.second.weight


def test_divergence_names_the_last_good_weights(model, split, tmp_path, monkeypatch):
    monkeypatch.setattr("unweave.engine.checkpoints.CheckpointFolder.due", lambda self: True)
    with pytest.raises(RunError, match=r"in step \d+ of ascend.* last good weights are in .*safetensors"):
        unlearn(model, split, method="ga", learning_rate=1e10, epochs=50, out=tmp_path / "run", compute=Compute("cpu"))
    kept = list((tmp_path / "run.unfinished" / "checkpoints").glob("*.safetensors"))
    assert kept
    assert all(tensor.isfinite().all() for file in kept for tensor in safetensors.torch.load_file(file).values())
    assert not (tmp_path / "run").exists()
