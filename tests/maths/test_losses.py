from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from torch import nn

from unweave import UsageError
from unweave.maths import clipped, odds_of, squared_wasserstein
from unweave.tasks import cross_entropy, log_odds, logits


def losses_of(low=1, high=7):
    return st.integers(low, high).flatmap(
        lambda n: arrays(np.float64, n, elements=st.floats(0, 20, allow_nan=False, width=32))
    )


def transport_cost(first, second):
    """The exact value of the transport problem, by linear programming over all couplings."""
    n, m = len(first), len(second)
    cost = (first[:, None] - second[None, :]) ** 2
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    marginals = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    found = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=marginals, method="highs")
    assert found.success
    return found.fun


@settings(max_examples=60, deadline=None)
@given(first=losses_of(), second=losses_of())
def test_squared_wasserstein_is_the_optimal_transport_cost(first, second):
    ours = squared_wasserstein(torch.from_numpy(first), torch.from_numpy(second)).item()
    assert ours == pytest.approx(transport_cost(first, second), rel=1e-6, abs=1e-6)


@given(first=losses_of(), second=losses_of())
def test_squared_wasserstein_is_symmetric_and_zero_on_itself(first, second):
    a, b = torch.from_numpy(first), torch.from_numpy(second)
    assert squared_wasserstein(a, b).item() == pytest.approx(squared_wasserstein(b, a).item(), abs=1e-9)
    assert squared_wasserstein(a, a.flip(0)).item() == 0


@pytest.mark.parametrize(("n", "m"), [(6, 6), (5, 3), (2, 7), (1, 4)])
def test_gradient_of_squared_wasserstein(n, m):
    generator = torch.Generator().manual_seed(n * 10 + m)
    a = torch.randn(n, dtype=torch.float64, generator=generator, requires_grad=True)
    b = torch.randn(m, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(squared_wasserstein, (a, b))


@given(values=losses_of(4, 24), parts=st.integers(1, 4), seed=st.integers(0, 99))
def test_minibatches_bound_the_whole_from_above(values, parts, seed):
    """W₂²(whole) ≤ mean over equal batches of W₂²(batch) ≤ mean squared change of each sample."""
    n = len(values) // parts * parts
    current = torch.from_numpy(values[:n])
    reference = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 20
    whole = squared_wasserstein(current, reference)
    pairs = zip(current.chunk(parts), reference.chunk(parts), strict=True)
    batches = torch.stack([squared_wasserstein(a, b) for a, b in pairs]).mean()
    paired = (current - reference).square().mean()
    assert whole <= batches + 1e-9
    assert batches <= paired + 1e-9


def test_no_distance_and_no_pull_from_where_it_started():
    losses = torch.rand(9, dtype=torch.float64, requires_grad=True)
    distance = squared_wasserstein(losses, losses.detach())
    (gradient,) = torch.autograd.grad(distance, losses)
    assert distance == 0
    assert torch.equal(gradient, torch.zeros(9, dtype=torch.float64))


def test_clip_stops_the_push_above_and_leaves_it_below():
    losses = torch.tensor([3.0, 9.99, 10.01, 50.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(clipped(losses, at=10.0).sum(), losses)
    assert gradient.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("bad", [torch.zeros(0), torch.zeros(2, 2), torch.tensor(1.0)])
def test_squared_wasserstein_wants_vectors(bad):
    with pytest.raises(UsageError, match="non-empty vector"):
        squared_wasserstein(bad, torch.ones(2))


def test_cross_entropy_is_per_sample_and_takes_every_kind_of_batch():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, features):
            return type("Output", (), {"logits": self.layer(features)})()

    named, inputs, labels = Named(), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    as_mapping = cross_entropy(named, {"features": inputs, "labels": labels})
    as_pair = cross_entropy(named.layer, (inputs, labels))
    assert torch.equal(as_mapping, as_pair)
    alone = torch.cat([cross_entropy(named.layer, (inputs[i : i + 1], labels[i : i + 1])) for i in range(6)])
    assert torch.allclose(as_pair, alone)


def test_a_model_without_logits_is_refused():
    with pytest.raises(UsageError, match="must return logits"):
        logits(nn.Identity(), (torch.zeros(2, 3, 4), torch.zeros(2)))


def test_log_odds_are_the_cross_entropy_on_another_scale():
    scores, labels = 6 * torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 4
    losses, odds = (function(nn.Identity(), (scores, labels)) for function in (cross_entropy, log_odds))
    probabilities = (-losses).exp()
    torch.testing.assert_close(odds, ((1 - probabilities) / probabilities).log())
    torch.testing.assert_close(nn.functional.softplus(odds), losses)
    torch.testing.assert_close(odds_of(losses), odds)


def test_log_odds_have_a_gradient_where_the_cross_entropy_has_none():
    labels = torch.tensor([0])
    found = {}
    for function in (cross_entropy, log_odds):
        scores = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
        function(nn.Identity(), (scores, labels)).sum().backward()
        found[function] = scores.grad
    assert found[cross_entropy].abs().max() < 1e-20
    torch.testing.assert_close(found[log_odds], torch.tensor([[-1.0, 0.5, 0.5]]))
