"""Functions of losses as distributions: distances, quantiles, log-odds, divergences. Tensors in, tensors out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from unweave.errors import UsageError


def odds_of(losses: Tensor) -> Tensor:
    """Return the log-odds against the label that cross-entropies stand for. Losses below 10⁻⁶ count as that.

    >>> odds_of(torch.tensor([0.0, 12.0]))
    tensor([-13.8155,  12.0000])
    """
    least = losses.clamp(min=1e-6)  # a loss in float32 has no digits below
    return least + torch.log(-torch.expm1(-least))


def divergence(target: Tensor, scores: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return KL(softmax(target/T) ‖ softmax(scores/T)) of every sample. A target of −∞ means probability 0.

    >>> divergence(torch.tensor([[0.0, -torch.inf]]), torch.tensor([[0.0, 0.0]]))  # log 2
    tensor([0.6931])
    """
    probabilities = functional.softmax(target / temperature, dim=-1)
    log_probabilities = functional.log_softmax(scores / temperature, dim=-1)
    found = (torch.xlogy(probabilities, probabilities) - probabilities * log_probabilities).sum(dim=-1)
    return found if found.ndim == 1 else found.flatten(1).mean(dim=1)


def clipped(losses: Tensor, *, at: float) -> Tensor:
    """Cap every loss, ClippedCE = min{C, CE}: a sample above the cap no longer pushes.

    >>> clipped(torch.tensor([3.0, 12.0]), at=10.0)
    tensor([ 3., 10.])
    """
    return losses.clamp(max=at)


def squared_wasserstein(current: Tensor, reference: Tensor) -> Tensor:
    """Return W₂², the squared Wasserstein-2 distance between two sets of losses (Eq. 7).

    In one dimension the best coupling pairs quantiles: for equal lengths the sorted values, otherwise the
    overlaps of the two staircases of quantiles, exactly. The gradient flows through both arguments.

    >>> squared_wasserstein(torch.tensor([0.0, 4.0]), torch.tensor([1.0]))
    tensor(5.)
    """
    for name, losses in (("current", current), ("reference", reference)):
        if losses.ndim != 1 or len(losses) == 0:
            raise UsageError(f"{name} must be a non-empty vector of losses, not of shape {tuple(losses.shape)}.")
    current, reference = current.sort().values, reference.sort().values
    n, m = len(current), len(reference)
    if n == m:
        return (current - reference).square().mean()
    # In units of 1/(n·m), sample i of `current` covers [i·m, (i+1)·m), sample j of `reference` [j·n, (j+1)·n).
    ends: Tensor = torch.cat(
        [
            torch.arange(1, n + 1, device=current.device) * m,
            torch.arange(1, m + 1, device=current.device) * n,
        ]
    ).unique()
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    weights = (ends - starts).to(current.dtype) / (n * m)
    apart = current[starts // m] - reference[starts // n]
    return (weights * apart.square()).sum()


def averaged_quantiles(losses: Tensor, count: int) -> Tensor:
    """Return the ``count`` losses nearest in W₂ to a distribution: its quantiles, averaged over ``count`` equal parts.

    For any ``count`` losses the squared distance to the distribution is that to these plus a constant (which is 0 for
    as many losses as there are parts), so to approach one is to approach the other.

    >>> averaged_quantiles(torch.tensor([4.0, 0.0, 2.0]), 2)  # a half is 0, 0, 2 of six, the other 2, 4, 4
    tensor([0.6667, 3.3333])
    """
    if losses.ndim != 1 or len(losses) == 0 or count < 1:
        raise UsageError(f"{count} quantiles of losses of shape {tuple(losses.shape)}: there must be some of both.")
    ordered = losses.sort().values.double()
    area = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])  # under the staircase of quantiles
    ends = torch.arange(count + 1, device=losses.device) * len(losses)
    whole = ends // count  # steps of the staircase that end before, and how far the next one is gone
    partly = (ends - whole * count).double() / count
    under = area[whole] + partly * ordered[whole.clamp(max=len(losses) - 1)]
    return (under.diff() * count / len(losses)).to(losses.dtype)
