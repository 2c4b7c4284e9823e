"""Forecasts before a run: which data is at risk, and how much a retrained model would still recognise."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import RETAINED, Partition, as_groups, nearest
from unweave.evaluation.entanglement import Entanglement

MOSTLY = 0.5  # from this share on, "erase" demands more than retraining achieves
FEW_ADJACENT = 50  # with fewer adjacent samples, neighbours are hard to repair


@dataclass(frozen=True)
class Inspection:
    """A split as a model sees it, before unlearning.

    Attributes:
        sizes: Samples of each subset.
        entanglement: How strongly the forget set mixes with retained data, and which groups are at risk.
        still_recognised: The share of the forget samples that a model trained without them would probably recognise.
            This is an estimate: it counts samples whose label wins the vote of the nearest retained samples.
        advice: Advice, in sentences.

    >>> mixed = Entanglement(k=20, score=0.3, per_sample=torch.tensor([0.3]), groups=[])
    >>> print(Inspection({"forget": 1, "adjacent": 9}, mixed, 0.25, ()))
    1 forget, 9 adjacent samples
    A model that never saw the forget data would probably still recognise 25% of it.
    ...
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
            'Retraining would not erase it. For a model as if never trained, use the goal "retrain". If you erase it, '
            "expect the neighbours to lose accuracy."
        )
    if len(split.adjacent) < FEW_ADJACENT:
        found.append(f"With only {len(split.adjacent)} adjacent samples, there is little data to repair neighbours.")
    return tuple(found)
