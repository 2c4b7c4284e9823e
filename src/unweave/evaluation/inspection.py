"""What can be said before a run: who is at risk, and what a model that never saw the data would still recognise."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import RETAINED, Partition, as_groups, nearest
from unweave.evaluation.entanglement import Entanglement

MOSTLY = 0.5  # share still recognised from which "erase" asks for more than retraining would give
FEW = 50  # adjacent samples, below which there is little to repair neighbours with


@dataclass(frozen=True)
class Inspection:
    """What a split looks like to a model, before any unlearning.

    Attributes:
        sizes: Samples of each subset.
        entanglement: How far the forget set is interwoven with retained data, and which groups are at risk.
        still_recognised: The share of the forget samples that a model which never saw them would probably recognise:
            those for which most of the nearest retained samples carry the same label. An estimate.
        advice: What follows, in sentences.
    """

    sizes: dict[str, int]
    entanglement: Entanglement
    still_recognised: float
    advice: tuple[str, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{count} {name}" for name, count in self.sizes.items())
        forecast = (
            f"A model that never saw the forget data would probably still recognise {self.still_recognised:.0%} of it."
        )
        return "\n".join([f"{sizes} samples", forecast, *self.advice, "", str(self.entanglement)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values."""
        return {
            "sizes": dict(self.sizes),
            "entanglement": self.entanglement.score,
            "groups": list(self.entanglement.groups),
            "still_recognised": self.still_recognised,
            "advice": list(self.advice),
        }


def inspected(split: Partition, features: Tensor, entanglement: Entanglement) -> Inspection:
    """Return the inspection of a split from the features of its whole data set."""
    kept = split.rows(*RETAINED)
    still = forecast(features, torch.from_numpy(split.forget), kept, split.samples.labels(), k=entanglement.k)
    return Inspection({name: len(split[name]) for name in split.names}, entanglement, still, _advice(split, still))


def forecast(features: Tensor, forget: Tensor, kept: Tensor, labels: Tensor, *, k: int) -> float:
    """Return the share of the forget samples whose k nearest retained samples vote for their label.

    >>> features = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> labels = torch.tensor([0, 0, 0, 1])
    >>> forecast(features, torch.tensor([0, 2]), torch.tensor([1, 3]), labels, k=1)
    0.5
    """
    groups = as_groups(labels)
    around = nearest(features[forget], features[kept], min(k, len(kept)))[1]
    votes = groups[kept][around].numpy()
    winners = np.array([np.bincount(row).argmax() for row in votes])
    return float((winners == groups[forget].numpy()).mean())


def _advice(split: Partition, still: float) -> tuple[str, ...]:
    found = []
    if still >= MOSTLY:
        found.append(
            'Retraining would not erase it. If it must look as if never trained, use the goal "retrain"; to erase it, '
            "expect the neighbours to pay."
        )
    if len(split.adjacent) < FEW:
        found.append(f"Only {len(split.adjacent)} adjacent samples: neighbours are repaired with little data.")
    return tuple(found)
