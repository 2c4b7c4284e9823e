"""A loss of the user's own, as a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from unweave.data import Data, labels_of
from unweave.errors import UsageError
from unweave.tasks.task import Task

Recognised: TypeAlias = Callable[[nn.Module, Data], Tensor]


class OwnLoss(Task):
    """A task that is known by its loss alone.

    Without ``recognised`` nothing is known of accuracy: the guard and the scores look at losses only. Methods that need
    logits, membership attacks that need probabilities, and certificates are not available.

    Args:
        loss: A function of (model, batch) that returns one loss per sample.
        recognised: A function of (model, batch) that returns, for every sample, whether the model recognises it.

    Raises:
        UsageError: ``loss`` is not such a function.

    >>> def absolute(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).abs()
    >>> task = OwnLoss(absolute, recognised=lambda model, batch: absolute(model, batch) < 0.5)
    >>> task.batch_losses(nn.Identity(), (torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0]))).tolist()
    [0.0, 2.0]
    """

    name = "own loss"
    has_choices = False
    independent = False  # such a loss may compare the samples of a batch
    bounded = False

    def __init__(self, loss: Callable[[nn.Module, Data], Tensor], *, recognised: Recognised | None = None) -> None:
        _require_loss(loss)
        self.loss, self.tells = loss, recognised

    def outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Return loss and, where it is known, whether the sample is recognised (1 or 0), as two columns."""
        losses = self.batch_losses(model, data)
        if self.tells is None:
            return losses[:, None]
        told = torch.as_tensor(self.tells(model, data), device=losses.device)
        return torch.stack([losses, one_each("recognised=", told, len(losses)).to(losses.dtype)], dim=1)

    def tried_outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Return what `outputs` returns: errors of the user's own functions speak for themselves."""
        return self.outputs(model, data)

    def read(self, raw: Tensor) -> Tensor:
        """Take what the loss makes of the model: nothing is known of its own outputs."""
        return raw

    def labels(self, labels: Tensor) -> Tensor:
        """Take labels as they are."""
        return labels

    def batch_losses(self, model: nn.Module, data: Data) -> Tensor:
        """Return what the user's loss returns, if that is one number per sample."""
        return one_each("loss=", self.loss(model, data), len(labels_of(data)))

    def batch_odds(self, model: nn.Module, data: Data) -> Tensor:
        """Return the losses, which stand in for log-odds."""
        return self.batch_losses(model, data)

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the first column."""
        return outputs[:, 0]

    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the losses, which stand in for log-odds."""
        return self.losses(outputs, labels)

    def recognised(self, outputs: Tensor, labels: Tensor) -> Tensor | None:
        """Return the second column, if the user said what recognised means."""
        return outputs[:, 1] > 0 if self.tells is not None else None

    def limit(self, outputs: Tensor) -> float:
        """Return 0: at which loss a sample stops being recognised is not known."""
        return 0.0

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Accept any labels: only the user's loss knows what they mean."""

    @property
    def spoken(self) -> str:
        """The name of the loss, for the configuration on record."""
        return f"{self.loss.__module__}.{getattr(self.loss, '__qualname__', type(self.loss).__qualname__)}"

    def __repr__(self) -> str:
        return f"OwnLoss({self.spoken})"


def one_each(what: str, found: Any, samples: int) -> Tensor:
    """Return the values, unless they are not one per sample.

    >>> one_each("loss=", torch.tensor(0.7), samples=4)
    Traceback (most recent call last):
    unweave.errors.UsageError: loss= must return one loss for each of the 4 samples of a batch, not a tensor of...
    """
    if isinstance(found, Tensor) and found.shape == (samples,):
        return found
    kind = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    values, hint = ("loss", " Leave the mean out (reduction='none').") if what == "loss=" else ("value", "")
    raise UsageError(f"{what} must return one {values} for each of the {samples} samples of a batch, not {kind}.{hint}")


def _require_loss(loss: Any) -> None:
    where = loss.__module__ if hasattr(loss, "__name__") else type(loss).__module__
    if not callable(loss) or str(where).startswith("torch.nn."):
        raise UsageError(
            "loss= must be a function of (model, batch) that returns one loss per sample. One of torch's takes scores "
            "and labels: lambda model, batch: torch_loss(model(batch[0]), batch[1])."
        )
