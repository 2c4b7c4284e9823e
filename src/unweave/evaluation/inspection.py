"""Forecasts before a run: which data is at risk, and how much a retrained model would still recognise."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unweave.data import RETAINED, Partition, as_groups, nearest
from unweave.evaluation.entanglement import Entanglement
from unweave.evaluation.votes import Votes

MOSTLY = 0.5  # from this share on, "erase" demands more than retraining achieves
OFTEN = 2.0  # a group that is this many times as frequent among the neighbours as in the data is at risk
DEGREES = ((0.3, "much"), (0.1, "some"), (0.02, "a little"))  # by a group's share of the neighbours
MOST_NAMED = 3  # groups that are named
COVERED = 0.5  # of the retained neighbours, at least so many should be adjacent data
FEW_ADJACENT = 50  # with fewer adjacent samples, neighbours are hard to repair


@dataclass(frozen=True)
class Inspection:
    """A split as a model sees it, before unlearning.

    Attributes:
        sizes: Samples of each subset.
        entanglement: How strongly the forget set mixes with retained data, and which groups are at risk.
        still_recognised: The share of the forget samples that a model trained without them would probably recognise.
            This is an estimate: samples whose label wins the vote of the nearest retained samples, at the depth of
            the model that says most about unseen data. docs/strangers-development.md has its error.
        advice: Advice, in sentences.
        at_risk: The retained groups that will probably lose accuracy if the forget set is erased, and about how much,
            in words. This is an estimate from their share of the neighbours; it is not calibrated.
        votes: What the forecast rests on: votes at several depths of the model.

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
    at_risk: tuple[str, ...] = ()
    votes: Votes | None = None

    def __str__(self) -> str:
        sizes = ", ".join(f"{count} {name}" for name, count in self.sizes.items())
        forecast = (
            f"A model that never saw the forget data would probably still recognise {self.still_recognised:.0%} of it."
        )
        return "\n".join([f"{sizes} samples", forecast, *self.at_risk, *self.advice, "", str(self.entanglement)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values."""
        return {
            "sizes": dict(self.sizes),
            "entanglement": self.entanglement.score,
            "groups": list(self.entanglement.groups),
            "still_recognised": self.still_recognised,
            "at_risk": list(self.at_risk),
            "advice": list(self.advice),
        }


def inspected(split: Partition, features: Tensor, entanglement: Entanglement, voted: Votes) -> Inspection:
    """Return the inspection of a split from the features of its whole data set, and from its neighbours' votes."""
    kept, forget = split.rows(*RETAINED), torch.from_numpy(split.forget)
    labels = as_groups(split.samples.labels())
    around = _neighbours(features, forget, kept, entanglement.k)
    still = voted.forecast
    groups = _groups_at_risk(entanglement)
    covered = float(torch.isin(around, torch.from_numpy(split.adjacent)).double().mean())
    advice = [_goal_advice(still, spread=_is_spread(labels[forget])), _adjacent_advice(groups, covered)]
    if len(split.adjacent) < FEW_ADJACENT:
        advice.append(f"With only {len(split.adjacent)} adjacent samples, there is little data to repair neighbours.")
    sizes = {name: len(split[name]) for name in split.names}
    return Inspection(sizes, entanglement, still, tuple(filter(None, advice)), _risk_in_words(groups), voted)


def _neighbours(features: Tensor, forget: Tensor, kept: Tensor, k: int) -> Tensor:
    """Return the rows of the k nearest retained samples of every forget sample."""
    return kept[nearest(features[forget], features[kept], min(k, len(kept)))[1]]


def _is_spread(labels: Tensor) -> bool:
    """Return whether no label has more than half of the forget samples."""
    return bool(2 * labels.unique(return_counts=True)[1].max() <= len(labels))


def _groups_at_risk(entanglement: Entanglement) -> list[tuple[dict[str, Any], str]]:
    """Return the retained groups that are often neighbours of forget samples, with how much they may lose."""
    found = []
    for group in entanglement.groups[:MOST_NAMED]:
        degree = next((words for least, words in DEGREES if group["share"] >= least), "")
        if degree and group["lift"] >= OFTEN:
            found.append((group, degree))
    return found


def _risk_in_words(groups: list[tuple[dict[str, Any], str]]) -> tuple[str, ...]:
    return tuple(
        f"At risk: {group['group']} will probably lose {degree} accuracy ({group['share']:.0%} of the neighbours, "
        f"{group['lift']:.1f} times the average)."
        for group, degree in groups
    )


def _goal_advice(still: float, *, spread: bool) -> str:
    if still < MOSTLY:
        return 'The goal "erase", that of the default method, fits: retraining would erase most of it too.'
    if spread:
        return (
            "The forget samples are spread over the labels, and retraining would not erase them. Take the goal "
            '"retrain": uw.Unweave(goal="retrain", reference=held_out_split). That split\'s adjacent samples are '
            "held-out data: uw.Split.where(data, forget=lambda sample: False, adjacent=lambda sample: True, "
            "allow_empty=True)."
        )
    return (
        'Retraining would not erase it. For a model as if never trained, use the goal "retrain". If you erase it, '
        "expect the neighbours to lose accuracy."
    )


def _adjacent_advice(groups: list[tuple[dict[str, Any], str]], covered: float) -> str:
    if covered >= COVERED or not groups:
        return ""
    names = ", ".join(group["group"] for group, _ in groups)
    return (
        f"Only {covered:.0%} of the retained neighbours are adjacent data. Add the neighbours in {names} to it, or "
        "take Split.by_neighbours."
    )
