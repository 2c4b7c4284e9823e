"""The results that the digits must show, as the mean of three seeds."""

from __future__ import annotations

import statistics

import pytest

from unweave import Compute, evaluate, unlearn
from unweave.methods import find_method


@pytest.fixture(scope="module")
def accuracies(digits):
    """Mean training accuracies by method and subset."""
    benchmark, task, _ = digits
    found: dict[str, list] = {}
    for seed in range(3):
        original = benchmark.train(task, seed=seed, device="cpu")
        found.setdefault("original", []).append(evaluate(original, task.train, task.test, compute=Compute("cpu")))
        for name in ("two-stage", "pgd", "ft", "ga"):
            method = find_method(name)
            method = method.configure(benchmark.settings_for(method, None))
            result = unlearn(original, task.train, method, seed=seed, compute=Compute("cpu"))
            found.setdefault(name, []).append(evaluate(result.model, task.train, task.test, compute=Compute("cpu")))
    return lambda method, part, subset: statistics.mean(s[part][subset]["accuracy"] for s in found[method])


def test_sizes(digits):
    _, task, _ = digits
    assert str(task.train) == "Split of 1347 samples: 135 forget, 406 adjacent, 806 remote"
    assert str(task.test) == "Split of 450 samples: 45 forget, 136 adjacent, 269 remote"
    assert {task.fine[row] for row in task.train.forget} == {9}
    assert {task.fine[row] for row in task.train.adjacent} == {1, 4, 7}


def test_the_original_knows_everything(accuracies):
    for subset in ("forget", "adjacent", "remote"):
        assert accuracies("original", "train", subset) > 0.99
        assert accuracies("original", "test", subset) > 0.93


def test_two_stage_forgets_and_keeps(accuracies):
    assert accuracies("two-stage", "train", "forget") <= 0.01
    assert accuracies("two-stage", "train", "adjacent") >= 0.95
    assert accuracies("two-stage", "train", "remote") >= 0.97
    assert accuracies("two-stage", "test", "forget") <= 0.05
    assert accuracies("two-stage", "test", "adjacent") >= 0.93


def test_plain_pgd_relearns(accuracies):
    assert accuracies("pgd", "train", "forget") >= 0.10
    assert accuracies("pgd", "train", "adjacent") >= 0.95


def test_fine_tuning_remembers_most_and_ascent_wrecks_the_neighbours(accuracies):
    assert accuracies("ft", "train", "forget") > 0.6
    assert accuracies("ga", "train", "adjacent") < 0.85
