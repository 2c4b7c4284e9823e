"""Losses as distributions: Wasserstein distance, quantiles, log-odds, divergence and clipping."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from unweave.errors import UsageError, as_number, as_whole
from unweave.maths.inputs import require_tensor, require_vector

MOST = 10**7  # quantiles


def odds_of(losses: Tensor) -> Tensor:
    """Return the log-odds against the right label, log((1 − p) / p), from the cross-entropies −log p.

    Args:
        losses: Cross-entropies, of any shape. Losses below 10⁻⁶ count as 10⁻⁶.

    Returns:
        The log-odds, in the shape of the losses.

    Example:
        >>> odds_of(torch.tensor([0.0, 12.0]))
        tensor([-13.8155,  12.0000])
    """
    require_tensor("losses", losses)
    least = losses.clamp(min=1e-6)  # below this, float32 no longer resolves p
    return least + torch.log(-torch.expm1(-least))


def divergence(target: Tensor, scores: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the Kullback-Leibler divergence KL(softmax(target/T) ‖ softmax(scores/T)) of every sample.

    Args:
        target: Logits of the distribution to approach, of shape (samples, classes). −∞ means probability 0.
        scores: Logits of the distribution that approaches it, in the same shape.
        temperature: The T that divides both.

    Returns:
        One divergence per sample, of shape (samples,).

    Example:
        >>> divergence(torch.tensor([[0.0, -torch.inf]]), torch.tensor([[0.0, 0.0]]))  # log 2
        tensor([0.6931])
    """
    for name, logits in (("target", target), ("scores", scores)):
        require_tensor(name, logits)
        if logits.ndim < 2 or not logits.is_floating_point():
            kind = f"{logits.dtype} in the shape {tuple(logits.shape)}"
            raise UsageError(f"{name} must hold logits of shape (samples, classes), not {kind}.")
    if target.shape != scores.shape:
        raise UsageError(
            f"target and scores must have one shape, but have {tuple(target.shape)} and {tuple(scores.shape)}."
        )
    temperature = as_number("temperature", temperature)
    probabilities = functional.softmax(target / temperature, dim=-1)
    log_probabilities = functional.log_softmax(scores / temperature, dim=-1)
    found = (torch.xlogy(probabilities, probabilities) - probabilities * log_probabilities).sum(dim=-1)
    return found if found.ndim == 1 else found.flatten(1).mean(dim=1)


def clipped(losses: Tensor, *, at: float) -> Tensor:
    """Cap every loss, ClippedCE = min{C, CE}. A sample above the cap has no gradient.

    Args:
        losses: Losses, of any shape.
        at: The cap, the paper's C.

    Returns:
        The capped losses, in the shape of the losses.

    Example:
        >>> clipped(torch.tensor([3.0, 12.0]), at=10.0)
        tensor([ 3., 10.])
    """
    require_tensor("losses", losses)
    cap = as_number("at", at)
    if losses.is_floating_point():  # a number beyond the type caps nothing
        most = torch.finfo(losses.dtype).max
        cap = min(max(cap, -most), most)
    return losses.clamp(max=cap)


def squared_wasserstein(current: Tensor, reference: Tensor) -> Tensor:
    """Return W₂², the squared Wasserstein-2 distance between two sets of losses (Eq. 7).

    In one dimension the best coupling pairs equal quantiles. Sets of equal size pair their sorted values. Sets of
    different sizes pair the overlaps of their two quantile functions, which are staircases. Both are exact.

    Args:
        current: A vector of losses, one per sample.
        reference: Another vector of losses. It may have another length. The gradient flows through both vectors.

    Returns:
        The squared distance, a single number.

    Raises:
        UsageError: One of the arguments is not a vector, or it is empty.

    Example:
        >>> squared_wasserstein(torch.tensor([0.0, 4.0]), torch.tensor([1.0]))
        tensor(5.)
    """
    for name, losses in (("current", current), ("reference", reference)):
        require_vector(name, losses)
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
    """Return the ``count`` losses that are nearest in W₂ to a distribution: the means of ``count`` equal parts.

    For any ``count`` losses, the squared distance to the distribution equals the squared distance to the returned
    losses plus a constant. So approaching the one approaches the other. The constant is 0 if the distribution has
    ``count`` losses itself.

    Args:
        losses: A vector of losses, which is the distribution.
        count: How many losses to return.

    Returns:
        A vector of ``count`` losses in ascending order.

    Raises:
        UsageError: The losses are not a vector, there are none, or ``count`` is below 1.

    Example:
        >>> averaged_quantiles(torch.tensor([4.0, 0.0, 2.0]), 2)  # means of 0, 0, 2 and of 2, 4, 4: each loss twice
        tensor([0.6667, 3.3333])
    """
    require_vector("losses", losses)
    count = as_whole("count", count, at_least=1)
    if count > MOST:
        raise UsageError(f"count is {count}, but may be at most {MOST}, or memory runs out.")
    ordered = losses.sort().values.double()
    area = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])  # under the quantile function, a staircase
    ends = torch.arange(count + 1, device=losses.device) * len(losses)
    whole = ends // count  # steps that end before, and the share of the next step
    partly = (ends - whole * count).double() / count
    under = area[whole] + partly * ordered[whole.clamp(max=len(losses) - 1)]
    return (under.diff() * count / len(losses)).to(losses.dtype)
