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

from unweave.data import Data, class_labels, labels_of, tensors_of
from unweave.errors import UsageError

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
