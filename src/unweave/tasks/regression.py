"""Regression: numbers instead of classes; a sample is recognised if every prediction is within a tolerance.

The loss is the mean squared error in units of the tolerance, so that settings in units of loss mean the same whatever
the labels are measured in. A recognised sample has a loss of 1 at most.
"""

from __future__ import annotations

from torch import Tensor

from unweave.errors import UsageError
from unweave.tasks.task import Task


class Regression(Task):
    """One or several numbers per sample.

    Args:
        tolerance: How far a prediction may be off, in the labels' unit, for the sample to count as recognised. A task
            that unweave finds by itself takes half the standard deviation of the labels.

    Raises:
        UsageError: The tolerance is not above 0.

    >>> import torch
    >>> task = Regression(tolerance=0.5)
    >>> outputs, labels = torch.tensor([[1.25], [4.0]]), torch.tensor([[1.0], [2.0]])
    >>> task.recognised(outputs, labels).tolist(), task.losses(outputs, labels).tolist()
    ([True, False], [0.25, 16.0])
    """

    name = "regression"
    correct = "within tolerance"
    has_choices = False

    def __init__(self, *, tolerance: float) -> None:
        if not tolerance > 0:
            raise UsageError(f"tolerance is {tolerance}, but must be above 0.")
        self.tolerance = float(tolerance)

    def read(self, raw: Tensor) -> Tensor:
        """Take predictions of shape (samples,) or (samples, numbers)."""
        if raw.ndim not in (1, 2):
            raise UsageError(
                f"The task regression needs outputs of shape (samples, numbers), but the model returned shape "
                f"{tuple(raw.shape)}."
            )
        return raw.reshape(len(raw), -1)

    def labels(self, labels: Tensor) -> Tensor:
        """Take labels of shape (samples,) or (samples, numbers)."""
        if labels.ndim not in (1, 2):
            raise UsageError(
                f"The task regression needs labels of shape (samples, numbers), not {tuple(labels.shape)}."
            )
        found = labels.reshape(len(labels), -1)
        return found if found.is_floating_point() else found.float()

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error of every sample, in units of the tolerance."""
        return ((outputs - labels.to(outputs.dtype)) / self.tolerance).square().mean(dim=1)

    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the losses, as there are no probabilities."""
        return self.losses(outputs, labels)

    def recognised(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return whether every prediction is within the tolerance."""
        return ((outputs - labels.to(outputs.dtype)).abs() <= self.tolerance).all(dim=1)

    def limit(self, outputs: Tensor) -> float:
        """Return 1, the loss at the tolerance."""
        return 1.0

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Refuse labels that are not finite, or not as many as the model predicts."""
        found = self.labels(labels)
        if found.shape[1] != outputs.shape[1]:
            raise UsageError(
                f"A sample has {found.shape[1]} label{'s' * (found.shape[1] > 1)}, but the model predicts "
                f"{outputs.shape[1]} numbers. For classes use task='classification' with whole numbers as labels."
            )
        bad = (~found.isfinite().all(dim=1)).nonzero()
        if len(bad):
            raise UsageError(f"The label of sample {int(rows[int(bad[0])])} is not finite.")

    def __repr__(self) -> str:
        return f"Regression(tolerance={self.tolerance:g})"
