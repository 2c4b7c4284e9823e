"""The contract of the front door: what others rely on keeps its name and meaning."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import unweave as uw
from unweave.api.moved import MOVED

CPU = uw.Compute("cpu")
NAMED = {
    "model", "split", "method", "test", "task", "seed", "out", "resume", "compute", "guard", "callbacks", "profile",
}  # fmt: skip


def test_unlearn_has_the_parameters_of_the_contract():
    parameters = inspect.signature(uw.unlearn).parameters
    assert {name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD} == NAMED


@pytest.mark.parametrize("name", MOVED)
def test_an_argument_that_moved_says_where_to(model, split, name):
    with pytest.raises(uw.UsageError, match=f"no longer takes {name}="):
        uw.unlearn(model, split, "ft", **{name: None})


def test_a_method_is_an_object_a_class_or_a_name(model, split):
    how = {"compute": CPU, "guard": None}
    made = uw.unlearn(model, split, uw.FineTune(epochs=1, batch_size=8), **how)
    named = uw.unlearn(model, split, "ft", epochs=1, batch_size=8, **how)
    for ours, theirs in zip(made.model.parameters(), named.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(uw.UsageError, match="has its settings already"):
        uw.unlearn(model, split, uw.FineTune(epochs=1), epochs=2, **how)
    assert "alpha" in inspect.signature(uw.TwoStage).parameters


def test_scores_and_verdict_come_without_a_folder(model, split):
    result = uw.unlearn(model, split, "ga", learning_rate=0.1, test=split, compute=CPU, guard=None)
    assert result.folder is None
    assert set(result.scores["test"]) >= {"forget", "adjacent", "remote"}
    assert result.scores is result.scores, "measured once"
    lines = str(result.verdict).splitlines()
    assert lines[0].startswith("Forgotten: ")
    assert lines[-1].startswith("Cost: ")


def test_compute_is_an_object(model, split):
    with pytest.raises(
        uw.UsageError, match=r"compute must be a Compute, such as uw.Compute\(device=\"cuda:1\"\), not str"
    ):
        uw.unlearn(model, split, "ft", compute="cuda:1")
    with pytest.raises(uw.UsageError, match="micro_batch must be a whole number, not '64'"):
        uw.Compute(micro_batch="64")


@pytest.mark.parametrize("what", ["split", "scores", "history", "verdict", "result"])
def test_results_print_and_have_an_html_form(model, split, what):
    result = uw.unlearn(model, split, "ft", epochs=2, batch_size=8, test=split, compute=CPU, guard=None)
    parts = {"split": split, "scores": result.scores, "history": result.history, "verdict": result.verdict}
    found = {**parts, "result": result}[what]
    assert "object at" not in repr(found)
    assert repr(found) == str(found)
    html = found._repr_html_()
    assert html.startswith("<")
    assert ("<svg" in html) is (what == "history")


def test_samples_with_an_index_are_taken(data, model):
    inputs, labels = data
    indexed = TensorDataset(inputs, labels, torch.arange(len(labels)))
    parts = {"forget": range(8), "adjacent": range(8, 20), "remote": range(20, 60)}

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return len(labels)

        def __getitem__(self, place):
            return inputs[place], int(labels[place]), place

    runs = [
        uw.unlearn(model, uw.Split(given, **parts), "ga", compute=CPU, guard=None).model
        for given in (data, indexed, Items())
    ]
    for other in runs[1:]:
        for ours, theirs in zip(runs[0].parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_numbers_of_numpy_and_paths_as_text_are_taken(data, model, tmp_path):
    split = uw.Split(data, forget=np.arange(8), adjacent=np.arange(8, 20), remote=np.arange(20, 60))
    result = uw.unlearn(
        model, split, "ft", epochs=np.int64(1), seed=np.int64(3), out=str(tmp_path / "run"), compute=CPU
    )
    assert result.config["seed"] == 3
    assert result.folder == tmp_path / "run"


def test_what_is_worth_telling_is_logged(model, split, caplog):
    with caplog.at_level(logging.INFO, logger="unweave"):
        uw.unlearn(model, split, "ga", compute=CPU, guard=None)
    assert "ga on Split of 60 samples" in caplog.text


def test_the_best_point_is_returned(model, split):
    trained = uw.unlearn(model, split, "ft", epochs=40, learning_rate=0.05, compute=CPU, guard=None).model
    ruin = {"learning_rate": 0.3, "momentum": 0.0, "epochs": 12, "compute": CPU, "guard": None}
    last = uw.unlearn(trained, split, "ga", **ruin)
    best = uw.Best(forget_at_most=0.5, every=1)
    found = uw.unlearn(trained, split, "ga", callbacks=[best], **ruin)
    accuracy = uw.evaluate(found.model, split, resamples=0, compute=uw.Compute("cpu"))["train"]
    worse = uw.evaluate(last.model, split, resamples=0, compute=uw.Compute("cpu"))["train"]
    assert accuracy["forget"]["accuracy"] <= 0.5
    assert accuracy["remote"]["accuracy"] + accuracy["adjacent"]["accuracy"] == pytest.approx(2 * best.value)
    assert best.value >= (worse["remote"]["accuracy"] + worse["adjacent"]["accuracy"]) / 2


def test_the_best_point_survives_a_resumed_run(model, split, tmp_path):
    how = {"epochs": 6, "batch_size": 8, "learning_rate": 0.05, "compute": CPU, "guard": None}
    whole = uw.unlearn(model, split, "ft", callbacks=[uw.Best(forget_at_most=1.0, every=2)], **how)
    left = iter(range(99))
    with pytest.raises(uw.Stopped):
        stop = uw.StopWhen(lambda: next(left) == 20)
        uw.unlearn(
            model, split, "ft", out=tmp_path / "r", callbacks=[uw.Best(forget_at_most=1.0, every=2), stop], **how
        )
    callbacks = [uw.Best(forget_at_most=1.0, every=2)]
    resumed = uw.unlearn(model, split, "ft", out=tmp_path / "r", resume=True, callbacks=callbacks, **how)
    for ours, theirs in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_record_can_be_written_later_from_the_folder(model, split, tmp_path):
    result = uw.unlearn(model, split, "ga", out=tmp_path / "run", compute=CPU, guard=None)
    other = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(uw.UsageError, match="another model"):
        uw.record.write(result.folder, uw.Request(id="17"), original=other, split=split)
    path = uw.record.write(result.folder, uw.Request(id="17"), original=model, split=split)
    assert path == tmp_path / "run" / "record.json"
    with pytest.raises(uw.UsageError, match="never overwritten"):
        uw.record.write(result, uw.Request(id="18"))


def test_inspection_forecasts_more_with_copies_of_forget_samples(data, model):
    inputs, labels = data
    before = uw.Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60)).inspect(model, k=3)
    copies = (torch.cat([inputs, inputs[:8]]), torch.cat([labels, labels[:8]]))
    after = uw.Split(copies, forget=range(8), adjacent=[*range(8, 20), *range(60, 68)]).inspect(model, k=3)
    assert after.still_recognised >= before.still_recognised
    assert "would probably still recognise" in str(after)


def test_the_names_of_the_contract():
    from unweave.losses import squared_wasserstein
    from unweave.projection import remove_span

    assert uw.losses.squared_wasserstein is squared_wasserstein
    assert uw.projection.remove_span is remove_span
    for name in ("Compute", "Checkpoints", "Watch", "Track", "Best", "TwoStage", "Unweave", "Retrain", "Limits"):
        assert name in uw.__all__


@pytest.mark.parametrize("name", [name for name in uw.__all__ if not name.startswith("__")])
def test_every_public_name_is_documented(name):
    assert (getattr(uw, name).__doc__ or "").strip()


def test_importing_warns_of_nothing():
    done = subprocess.run([sys.executable, "-W", "error", "-c", "import unweave"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
