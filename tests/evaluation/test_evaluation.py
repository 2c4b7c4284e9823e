from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from unweave import Compute, RunError, Scores, Split, UsageError, evaluate
from unweave.evaluation import RelearnSettings
from unweave.evaluation.relearn import shown_and_watched


class Echo(nn.Module):
    """Predicts what its input says."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs):
        return self.scale * inputs


def test_accuracy_counts_samples_not_batches():
    inputs = torch.eye(2)[[0, 0, 0, 0, 1]] * 9
    labels = torch.tensor([0, 0, 0, 1, 1])
    split = Split((inputs, labels), forget=[0], adjacent=[1], remote=[2, 3, 4])
    scores = evaluate(Echo(), split, batch_size=2, compute=Compute("cpu"))
    assert scores["train"]["remote"]["accuracy"] == 2 / 3
    assert scores["train"]["forget"]["accuracy"] == 1
    assert scores["train"]["remote"]["samples"] == 3


def test_batch_size_does_not_matter(digits):
    _, task, model = digits
    small, large = (
        evaluate(model, task.train, task.test, reference=model, batch_size=size, compute=Compute("cpu"))
        for size in (7, 512)
    )
    for first, second in zip(small.metrics, large.metrics, strict=True):
        assert first.place == second.place
        assert first.note == second.note
        if first.metric == "accuracy" or first.value is None:
            assert first == second
        else:
            assert first.value == pytest.approx(second.value, rel=1e-3, abs=1e-3), first.place
    assert small.goals[0].value == pytest.approx(large.goals[0].value)


def test_quantiles_and_json(digits):
    _, task, model = digits
    scores = evaluate(model, task.train, compute=Compute("cpu"))
    quantiles = scores["train"]["forget"]["loss_quantiles"]
    assert list(quantiles) == ["0", "0.05", "0.25", "0.5", "0.75", "0.95", "1"]
    assert sorted(quantiles.values()) == list(quantiles.values())
    again = Scores.from_dict(json.loads(json.dumps(scores.to_dict())))
    assert again.to_dict() == scores.to_dict()
    assert "test" not in scores
    assert "forget" in str(scores)
    with pytest.raises(UsageError, match="schema 99"):
        Scores.from_dict({"schema": 99})


def test_a_missing_subset_is_absent_not_zero(data, model):
    test = Split(data, forget=[], adjacent=[1], remote=[2], allow_empty=True)
    train = Split(data, forget=[0], adjacent=[1], remote=[2])
    scores = evaluate(model, train, test, compute=Compute("cpu"))
    assert scores["test"]["forget"] == {"samples": 0, "accuracy": None, "loss": None, "loss_quantiles": None}
    assert scores.metric("accuracy", "test", "forget").note == "The test data has no forget samples."
    assert "–" in str(scores)


def test_the_model_is_left_as_it_was(digits):
    _, task, model = digits
    model.train()
    statistics = [buffer.clone() for buffer in model.buffers()]
    evaluate(model, task.train, compute=Compute("cpu"))
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(statistics, model.buffers(), strict=True))
    model.eval()


def test_a_broken_model_is_named(split, model):
    model[0].weight.data.fill_(torch.nan)
    with pytest.raises(RunError, match="not finite for 60 samples"):
        evaluate(model, split, compute=Compute("cpu"))


def test_every_number_has_a_direction_and_every_absence_a_reason(split, model):
    scores = evaluate(model, split, split, compute=Compute("cpu"))
    assert all(metric.better in ("lower", "higher", "reference") for metric in scores.metrics)
    assert all(metric.note for metric in scores.metrics if metric.value is None)
    for metric in scores.metrics:
        if metric.low is not None and "balanced" not in metric.metric:
            assert metric.low <= metric.value <= metric.high, metric
    with pytest.raises(UsageError, match="Did you mean 'tow'"):
        scores.metric("tov")
    with pytest.raises(UsageError, match=r"no question 'prob'.* 'probe'"):
        evaluate(model, split, questions=["prob"], compute=Compute("cpu"))


def test_the_losses_of_every_sample_are_kept_and_their_distribution_is_in_the_file(digits):
    _, task, model = digits
    scores = evaluate(model, task.train, compute=Compute("cpu"))
    losses = scores.observed("train", "forget").losses
    assert len(losses) == 135
    histogram = scores["train"]["forget"]["loss_histogram"]
    assert sum(histogram["counts"]) == 135
    assert histogram["edges"][0] == pytest.approx(float(losses.min()))
    whole = scores.metric("accuracy", "train")
    assert whole.value == int(scores.observed("train").correct.sum()) / 1347


def test_printing_fits_eighty_columns_and_shows_both_goals(digits):
    _, task, model = digits
    for scores in (
        evaluate(model, task.train, compute=Compute("cpu")),
        evaluate(model, task.train, task.test, reference=[model, model], original=model, compute=Compute("cpu")),
    ):
        lines = str(scores).splitlines()
        assert max(map(len, lines)) <= 80
        assert any(line.startswith("erase: ") for line in lines)
        assert any(line.startswith("as if never trained: ") for line in lines)
        again = Scores.from_dict(json.loads(json.dumps(scores.to_dict())))
        assert str(again) == str(scores)


def test_random_numbers_of_the_caller_are_left_alone(split, model):
    torch.manual_seed(5)
    evaluate(
        model,
        split,
        split,
        reference=model,
        questions=["membership", "reference", "probe", "relearn"],
        compute=Compute("cpu"),
    )
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


def test_what_is_heavy_loads_only_when_needed():
    heavy = ("sklearn", "scipy", "matplotlib", "transformers", "optuna", "torch._dynamo")
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, unweave; print([m for m in {heavy} if m in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("asked", "shown"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_relearning_shows_as_many_forget_samples_as_asked_half_at_most_and_watches_the_others(split, asked, shown):
    settings = RelearnSettings(samples=asked)
    found = shown_and_watched(split, "forget", settings, seed=3)
    assert len(found.adjacent) == shown
    assert sorted([*found.adjacent, *found.forget]) == sorted(split.forget)
    honest = shown_and_watched(split, "adjacent", settings, seed=3)
    assert (honest.adjacent.tolist(), honest.forget.tolist()) == (split.adjacent.tolist(), split.forget.tolist())


def test_evaluation_keeps_samples_where_the_run_keeps_them(split, model):
    evaluate(model, split, compute=Compute("cpu", keep_data="host"))
    assert not split.samples.kept(torch.device("cpu"))
    evaluate(model, split, compute=Compute("cpu"))
    assert split.samples.kept(torch.device("cpu"))


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ("cuda:1", 'compute must be a Compute, such as uw.Compute(device="cuda:1")'),
        (Compute("cpu", max_memory="1GB"), "max_memory limits the memory of a CUDA device, but this run is on cpu"),
    ],
)
def test_how_to_compute_is_checked_first(model, split, compute, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        evaluate(model, split, compute=compute)
