from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from unweave import RunError, Scores, Split, UsageError, evaluate


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
    scores = evaluate(Echo(), split, batch_size=2, device="cpu")
    assert scores["train"]["remote"]["accuracy"] == 2 / 3
    assert scores["train"]["forget"]["accuracy"] == 1
    assert scores["train"]["remote"]["samples"] == 3


def test_batch_size_does_not_matter(digits):
    _, task, model = digits
    found = [evaluate(model, task.train, task.test, batch_size=size, device="cpu").to_dict() for size in (7, 512)]
    for part in ("train", "test"):
        for subset in ("forget", "adjacent", "remote"):
            first, second = (scores[part][subset] for scores in found)
            assert first["accuracy"] == second["accuracy"]
            assert first["loss"] == pytest.approx(second["loss"], rel=1e-5)


def test_quantiles_and_json(digits):
    _, task, model = digits
    scores = evaluate(model, task.train, device="cpu")
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
    scores = evaluate(model, train, test, device="cpu")
    assert scores["test"]["forget"] == {"samples": 0, "accuracy": None, "loss": None, "loss_quantiles": None}
    assert "–" in str(scores)


def test_the_model_is_left_as_it_was(digits):
    _, task, model = digits
    model.train()
    statistics = [buffer.clone() for buffer in model.buffers()]
    evaluate(model, task.train, device="cpu")
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(statistics, model.buffers(), strict=True))
    model.eval()


def test_a_broken_model_is_named(split, model):
    model[0].weight.data.fill_(torch.nan)
    with pytest.raises(RunError, match="not finite for 8 samples"):
        evaluate(model, split, device="cpu")
