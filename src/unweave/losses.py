"""Per-sample losses and functions of them: the one currency of the package.

A loss maps (model, batch) to one number per sample. Means, clips, constraints and Wasserstein terms are
functions of that vector, so whoever needs a mean takes it, once.

>>> reference = torch.tensor([9.0, 10.0, 11.0])
>>> squared_wasserstein(torch.tensor([11.0, 9.0, 7.0]), reference)  # sorted: 7, 9, 11 against 9, 10, 11
tensor(1.6667)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.errors import UsageError
from unweave.labels import Data, class_labels, labels_of
from unweave.trees import tensors_of

Loss: TypeAlias = Callable[[nn.Module, Data], Tensor]


def logits(model: nn.Module, data: Data) -> Tensor:
    """Run the model on a batch and return its logits, one row per sample, in float32 or better.

    Mapping batches are passed by keyword without their labels; a model may return the logits themselves or
    an object with ``.logits``, as Hugging Face models do.
    """
    output: Any
    if isinstance(data, Mapping):
        output = model(**{name: value for name, value in data.items() if name != "labels"})
    else:
        output = model(data[0])
    scores = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(scores, Tensor) or scores.ndim != 2:
        raise UsageError(
            "The model must return logits of shape (samples, classes), or an object with such .logits; it "
            f"returned {type(output).__name__}"
            + (f" of shape {tuple(scores.shape)}." if isinstance(scores, Tensor) else ".")
        )
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def try_on(model: nn.Module, data: Data) -> Tensor:
    """Return the logits of some samples; say in our words that the model cannot take them, if so.

    >>> try_on(nn.Flatten(5), (torch.zeros(1, 5), torch.tensor([0])))
    Traceback (most recent call last):
    unweave.errors.UsageError: The model cannot take a sample of float32 (5): Dimension out of range (expected to be...
    """
    try:
        return logits(model, data)
    except (torch.OutOfMemoryError, UsageError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        inputs = [tensor for tensor in tensors_of(data) if tensor is not labels_of(data)]
        kinds = [f"{str(one.dtype).removeprefix('torch.')} ({', '.join(map(str, one.shape[1:]))})" for one in inputs]
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"The model cannot take a sample of {' and '.join(kinds)}: {reason}") from error


def require_one_each(losses: Tensor, samples: int) -> Tensor:
    """Return the losses, unless they are something else, such as their mean.

    >>> require_one_each(torch.tensor(0.7), samples=4)
    Traceback (most recent call last):
    unweave.errors.UsageError: loss= must return one loss for each of the 4 samples of a batch, not a tensor of...
    """
    if not isinstance(losses, Tensor) or losses.shape != (samples,):
        found = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise UsageError(
            f"loss= must return one loss for each of the {samples} samples of a batch, not {found}. "
            "Leave the mean out (reduction='none')."
        )
    return losses


def cross_entropy(model: nn.Module, data: Data) -> Tensor:
    """Return the cross-entropy of every sample: ℓ(f_θ(x), y).

    >>> model = nn.Linear(2, 3)
    >>> cross_entropy(model, (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))).shape
    torch.Size([4])
    """
    return functional.cross_entropy(logits(model, data), class_labels(labels_of(data)), reduction="none")


def log_odds(model: nn.Module, data: Data) -> Tensor:
    """Return m = log((1 − p) / p) of every sample, p the probability of its label: the log-odds against it.

    The cross-entropy is log(1 + eᵐ): of a sample that the model is wrong about it is hardly more than m. Of one that it
    is sure about, the loss ends at 0 and so does its gradient; the log-odds go on, and say where they rise.

    >>> sure, wrong = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([[0.0, 8.0, 0.0]])
    >>> [round(log_odds(nn.Identity(), (scores, torch.tensor([0]))).item(), 2) for scores in (sure, wrong)]
    [-19.31, 8.0]
    """
    scores, labels = logits(model, data), class_labels(labels_of(data))
    own = labels[:, None] == torch.arange(scores.shape[1], device=scores.device)
    return scores.masked_fill(own, -torch.inf).logsumexp(dim=1) - scores.masked_fill(~own, 0).sum(dim=1)


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
    probabilities = functional.softmax(target / temperature, dim=1)
    log_probabilities = functional.log_softmax(scores / temperature, dim=1)
    return (torch.xlogy(probabilities, probabilities) - probabilities * log_probabilities).sum(dim=1)


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
