"""Binary classification with one logit z: positive means the label 1.

It is classification between two classes with the logits 0 and z, so its loss is the usual binary cross-entropy, and
every method and metric of classification applies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.tasks.classification import Classification


class Binary(Classification):
    """Yes or no: one logit per sample, labels 0 and 1 (also as True and False, or 0.0 and 1.0).

    >>> task = Binary()
    >>> task.losses(task.read(torch.tensor([[3.0]])), torch.tensor([1]))  # log(1 + e⁻³)
    tensor([0.0486])
    """

    name = "binary"

    def read(self, raw: Tensor) -> Tensor:
        """Take one logit per sample, of shape (samples,) or (samples, 1); return the logits 0 and z."""
        if raw.ndim == 0 or raw.numel() != len(raw):
            raise UsageError(
                f"The task binary needs one logit per sample, but the model returned shape {tuple(raw.shape)}. "
                "For several classes use task='classification', for several labels task='multi-label'."
            )
        one = raw.reshape(-1)
        return torch.stack([torch.zeros_like(one), one], dim=1)

    def labels(self, labels: Tensor) -> Tensor:
        """Take 0 and 1, of shape (samples,) or (samples, 1)."""
        return labels.reshape(len(labels), -1)[:, 0].long() if labels.ndim == 2 else labels.long()

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Refuse labels other than 0 and 1."""
        found = labels.reshape(len(labels), -1)
        bad = ((found != 0) & (found != 1)).nonzero()
        if len(bad) or found.shape[1] != 1:
            place = int(bad[0, 0]) if len(bad) else 0
            raise UsageError(
                f"Sample {int(rows[place])} has the label {found[place].tolist()}, but a model with one logit tells "
                "only the labels 0 and 1 apart. For more classes give it one output per class (task='classification'); "
                "to predict quantities use task='regression'."
            )
