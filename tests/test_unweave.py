"""Our own method: the constraint holds, is restored, and bounds the accuracy."""

import math

import pytest
import torch
from torch import nn

from unweave import Split, UsageError, evaluate, unlearn
from unweave.engine import Workbench, run_phases
from unweave.methods.unweave import Constrained, UnweaveSettings
from unweave.projection import gram_matrix

CPU = torch.device("cpu")


@pytest.fixture
def problem():
    """A smooth problem in float64: a small network, and a split of random data."""
    torch.manual_seed(0)
    data = (torch.randn(60, 5, dtype=torch.float64), torch.arange(60) % 3)
    split = Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double(), split


def settings(**values):
    return UnweaveSettings(**({"learning_rate": 1e-2, "epochs": 20, "batch_size": 12, "remote_batch": 40} | values))


def begun(model, split, chosen):
    phase = Constrained(chosen)
    phase.prepare(Workbench(model, split, device=CPU))
    phase.begin()
    return phase


def shortfall(model, split, target):
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
    return (target - losses).clamp(min=0).square().mean(), (model(inputs).argmax(1) == labels).double().mean()


def test_shortfall_and_gradient_are_those_of_the_whole_forget_set(problem):
    model, split = problem
    phase = begun(model, split, settings(forget_batch=3, target=6.0))
    phase.logged = {}
    value, gradient = phase._shortfall()
    expected, _ = shortfall(model, split, 6.0)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, list(torch.autograd.grad(expected, list(model.parameters()))))


def test_the_tangent_step_leaves_the_shortfall_as_it_is_to_first_order(problem):
    model, split = problem
    phase = begun(model, split, settings(restore=1e-9))
    phase.logged = {}
    _, uphill = phase._shortfall()
    phase.step(0)
    product = gram_matrix([phase.velocity, uphill])
    assert abs(product[0, 1]) < 1e-12 * (product[0, 0] * product[1, 1]).sqrt()


def test_the_restoring_step_takes_the_share_it_says_to_first_order(problem):
    model, split = problem
    before, _ = shortfall(model, split, 6.0)
    tau = 0.97 * before.item()
    budget = tau / (6.0 - math.log(3)) ** 2
    phase = begun(model, split, settings(target=6.0, budget=budget, learning_rate=1e-12, restore=0.5, reach=1.0))
    phase.step(0)
    after, _ = shortfall(model, split, 6.0)
    assert (after.item() - tau) / (before.item() - tau) == pytest.approx(0.5, abs=0.05)


def test_the_shortfall_returns_below_its_limit_from_a_perturbed_start(problem):
    model, split = problem
    chosen = settings(target=6.0, budget=0.01, reach=0.05, epochs=300)
    run_phases(Workbench(model, split, device=CPU), [Constrained(chosen)])
    limit = 0.01 * (6.0 - math.log(3)) ** 2
    assert shortfall(model, split, 6.0)[0].item() <= 1.01 * limit
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    assert shortfall(model, split, 6.0)[0].item() > 2 * limit
    run_phases(Workbench(model, split, device=CPU), [Constrained(chosen)])
    assert shortfall(model, split, 6.0)[0].item() <= 1.01 * limit


def test_the_bound_holds_at_every_step(problem):
    model, split = problem
    phase = begun(model, split, settings(target=6.0, reach=0.05))
    for number in range(40):
        _, accuracy = shortfall(model, split, 6.0)
        logged = phase.step(number)
        assert accuracy <= logged["forget_bound"] + 1e-12
    assert logged["forget_bound"] < 1


def test_a_target_that_proves_nothing_is_refused(problem):
    model, split = problem
    with pytest.raises(UsageError, match=r"above log\(classes\) = 1.10"):
        unlearn(model, split, "unweave", target=1.0, device="cpu")


def test_a_forget_set_that_is_forgotten_already_is_left_alone():
    data = (torch.eye(4), torch.tensor([1, 0, 0, 1]))
    split = Split(data, forget=[0], adjacent=[1], remote=[2, 3])
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
        model.weight[0, 0] = 30.0
    result = unlearn(model, split, "unweave", device="cpu", epochs=3)
    assert result.history.rows[-1]["shortfall"] == 0


def test_digits_are_forgotten_within_the_budget_and_the_rest_is_kept(digits):
    benchmark, task, original = digits
    values = benchmark.settings["unweave"]["default"]
    result = unlearn(original, task.train, "unweave", seed=0, device="cpu", **values)
    scores = evaluate(result.model, task.train, task.test, device="cpu", resamples=0)
    assert scores["train"]["forget"]["accuracy"] <= 0.005
    assert scores["train"]["adjacent"]["accuracy"] >= 0.98
    assert scores["train"]["remote"]["accuracy"] >= 0.99
    assert scores["test"]["forget"]["accuracy"] <= 0.05
    assert scores["test"]["remote"]["accuracy"] >= 0.95
    assert result.history.rows[-1]["forget_bound"] <= 0.0051
