"""What a model says about samples: its logits, kept once, so that one forward pass serves every metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import Samples, labels_of, pick_device, reading
from unweave.errors import RunError
from unweave.losses import logits


@dataclass(frozen=True)
class Predictions:
    """Logits and labels of some samples, on the CPU."""

    logits: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def losses(self) -> Tensor:
        """The cross-entropy of every sample."""
        return functional.cross_entropy(self.logits, self.labels, reduction="none")

    @cached_property
    def correct(self) -> Tensor:
        """Whether each sample is predicted as its label."""
        return self.logits.argmax(dim=1) == self.labels


def predict(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int = 512,
    device: str | torch.device | None = None,
) -> Predictions:
    """Run the model, in evaluation mode, on the samples at these positions. The model is left as it was."""
    where = pick_device(device)
    if len(rows) == 0:
        return Predictions(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    samples.keep(rows, where)
    found, labels = [], []
    with reading(model, where):
        for some in rows.split(batch_size):
            data = samples.batch(some, where).data
            found.append(logits(model, data).cpu())
            labels.append(labels_of(data).cpu())
    predictions = Predictions(torch.cat(found), torch.cat(labels))
    bad = ~predictions.logits.isfinite().all(dim=1)
    if bad.any():
        raise RunError(
            f"The model's output is not finite for {int(bad.sum())} samples (first: sample "
            f"{int(rows[bad.nonzero()[0]])}). Check its weights and the data."
        )
    return predictions
