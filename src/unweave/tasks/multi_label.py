"""Several labels at once: each is present or not, and a sample is recognised if all of them are right.

The loss of a sample is the mean of its labels' binary cross-entropies. A recognised sample has a loss of log 2 at most,
so bounds hold as for two classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.tasks.choices import mean_odds, odds_against
from unweave.tasks.classification import Classification


class MultiLabel(Classification):
    """One logit for each of several labels, all of which may be present: outputs and labels (samples, labels).

    >>> task = MultiLabel()
    >>> outputs, labels = task.read(torch.tensor([[2.0, -1.0]])), torch.tensor([[1, 0]])
    >>> task.recognised(outputs, labels).tolist(), task.losses(outputs, labels)
    ([True], tensor([0.2201]))
    """

    name = "multi-label"
    correct = "every label right"

    def read(self, raw: Tensor) -> Tensor:
        """Take logits of shape (samples, labels); return the logits 0 and z of every label."""
        if raw.ndim != 2:
            raise UsageError(
                f"The task multi-label needs logits of shape (samples, labels), but the model returned shape "
                f"{tuple(raw.shape)}."
            )
        return torch.stack([torch.zeros_like(raw), raw], dim=2)

    def labels(self, labels: Tensor) -> Tensor:
        """Take 0 and 1 of shape (samples, labels)."""
        if labels.ndim != 2:
            raise UsageError(
                f"The task multi-label needs labels of shape (samples, labels), not {tuple(labels.shape)}. For one "
                "label per sample use task='classification' or, with one logit, task='binary'."
            )
        return labels.long()

    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the log-odds m for which log(1 + eᵐ) is the mean of the labels' losses."""
        return mean_odds(odds_against(outputs, labels))

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Refuse another number of labels than the model has, and labels other than 0 and 1."""
        found = self.labels(labels)
        if found.shape[1] != outputs.shape[1]:
            raise UsageError(
                f"Samples have {found.shape[1]} labels each, but the model gives {outputs.shape[1]} logits."
            )
        bad = ((labels != 0) & (labels != 1)).nonzero()
        if len(bad):
            place, label = bad[0].tolist()
            raise UsageError(
                f"Sample {int(rows[place])} has {labels[place, label].item():g} for label {label}, but with several "
                "labels each must be 0 or 1. To predict quantities use task='regression'."
            )
