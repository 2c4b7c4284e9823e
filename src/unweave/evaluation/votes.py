"""How much a model that never saw the forget data would recognise of it: votes of the nearest retained samples.

**At which depth.** A model that was trained on a sample has learned its label, whatever the rest of the data says. Its
last features agree with labels that nothing else explains (wrong labels, a cluster with a label of its own), so the
neighbours there would vote for them. The input and the first layers know little of labels, and too little of what a
model can learn. What a model does to unseen data lies between. So votes are counted at several depths, for forget
samples, and for retained samples among each other. The latter are recognised by their neighbours more and more from
the input to the last layer, where they are as training left them. The depth at which their share is half-way between
its smallest and its largest value is the one whose votes count (``docs/strangers-development.md`` has the error).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unweave.data import Samples, as_groups, nearest
from unweave.errors import UsageError
from unweave.evaluation.features import features
from unweave.evaluation.layers import layer_features
from unweave.runtime import Precision, pick_device, reading
from unweave.tasks import is_text

FORGET = 2_000  # forget samples that are looked at, at most
KEPT = 10_000  # retained samples that may be neighbours, at most
JUDGED = 1_000  # retained samples that neighbours vote for, at most
NOISE = 0.01  # of a share of so many


@dataclass(frozen=True)
class Votes:
    """Shares of samples whose label wins the vote of their neighbours, at several depths from input to outputs.

    >>> Votes(kept=(0.5, 0.7, 0.9), forget=(0.1, 0.3, 0.8)).forecast
    0.29
    """

    kept: tuple[float, ...]
    forget: tuple[float, ...]

    @property
    def forecast(self) -> float:
        """The forget samples' share where that of the kept ones is half-way between its smallest and its largest."""
        return round(self.at(0.5), 4)

    def at(self, part: float, *, noise: float = NOISE) -> float:
        """Return the forget samples' share at a part of the way that the kept ones' share goes."""
        level = (1 - part) * min(self.kept) + part * max(self.kept) - noise
        return _at(self.kept, min(level, max(self.kept)), self.forget)


def votes_in(
    model: nn.Module,
    samples: Samples,
    forget: Tensor,
    kept: Tensor,
    labels: Tensor,
    *,
    k: int,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
) -> Votes:
    """Return the votes in the features of a model, whose forecast is what a model trained on kept data recognises.

    ``labels`` has one for every sample. It takes one forward pass over at most 12,000 samples.
    """
    forget, kept = evenly(forget, FORGET), evenly(kept, KEPT)
    rows = torch.cat([forget, kept])
    where: dict[str, Any] = {"device": device, "precision": precision}
    try:
        with reading(model, pick_device(device)):  # reading may draw random numbers
            text = is_text(samples.read(rows[:1]))
        layers = [] if text else layer_features(model, samples, rows, **where)
    except UsageError:  # samples of different sizes; the last features may do
        layers = []
    layers = layers or [features(model, samples, rows, **where)]
    places = torch.arange(len(rows))
    return votes_by(layers, places[: len(forget)], places[len(forget) :], labels[rows], k=k)


def votes_by(layers: Sequence[Tensor], forget: Tensor, kept: Tensor, labels: Tensor, *, k: int) -> Votes:
    """Return the votes of the k nearest retained samples, in each of several ``layers`` of features.

    >>> features = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> labels = torch.tensor([0, 0, 0, 1])
    >>> votes_by([features], torch.tensor([0, 2]), torch.tensor([1, 3]), labels, k=1).forecast
    0.5
    """
    labels, judged = as_groups(labels), evenly(kept, JUDGED)
    return Votes(
        kept=tuple(_outvoted(layer, judged, kept, labels, k) for layer in layers),
        forget=tuple(_outvoted(layer, forget, kept, labels, k) for layer in layers),
    )


def _at(known: Sequence[float], level: float, values: Sequence[float]) -> float:
    """Return the value where ``known`` first reaches a level, interpolated from the depth before."""
    depth = next(depth for depth, share in enumerate(known) if share >= level)
    if depth == 0:
        return values[0]
    part = (level - known[depth - 1]) / (known[depth] - known[depth - 1])
    return values[depth - 1] + part * (values[depth] - values[depth - 1])


def evenly(rows: Tensor, most: int) -> Tensor:
    """Return at most so many rows, evenly spread.

    >>> evenly(torch.arange(10), 3)
    tensor([0, 3, 6])
    """
    return rows if len(rows) <= most else rows[torch.arange(most) * len(rows) // most]


def _outvoted(features: Tensor, rows: Tensor, kept: Tensor, labels: Tensor, k: int) -> float:
    """Return the share of the rows whose label is the most frequent of their k nearest other retained samples."""
    among = bool(torch.isin(rows, kept).any()) and len(kept) > 1
    around = kept[nearest(features[rows], features[kept], min(k + among, len(kept)))[1]]
    if among:
        own = around == rows[:, None]
        own[~own.any(dim=1), -1] = True  # with duplicates the sample itself may be missing from its list
        around = around[~own].reshape(len(rows), -1)
    return float((labels[around].mode(dim=1).values == labels[rows]).double().mean())
