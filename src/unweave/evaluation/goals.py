"""Two goals that disagree, so both are always shown: *erase* (the paper's) and *as if never trained* (privacy's).

**Erase**: the forget samples are no longer recognised, and no other accuracy falls. The value is

    Π (1 − forget accuracy) × Π (1 − loss of adjacent and remote accuracy)    over training and test data

**As if never trained**: the model behaves like one that was retrained without the forget data, which may still
recognise many of them. The value is Π (1 − |difference to retrain|) over all accuracies and the two membership
numbers of the forget set. Both values are at most 1. The text names the smallest factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unweave.data import RETAINED
from unweave.evaluation.metric import Metric

COLLAPSE = 0.10  # a model that loses more accuracy than this on retained data counts as broken
BEHAVIOUR = ("mia_svc_confidence", "mia_population_auc")


@dataclass(frozen=True)
class Goal:
    """How near a model is to a goal, in [0, 1], and the worst factor. The value is None if it is unknown."""

    name: str
    value: float | None
    worst: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entries by name."""
        return asdict(self)


def goals(metrics: Iterable[Metric]) -> list[Goal]:
    """Return both goals."""
    known = {metric.place: metric for metric in metrics}
    return [erase(known), as_if_never_trained(known)]


def erase(known: dict[tuple[str, str, str], Metric]) -> Goal:
    """Return how far the forget data is erased without harm to its neighbours."""
    factors = []
    assumed = False
    for (part, subset, name), metric in known.items():
        if name != "accuracy" or metric.value is None or not subset:
            continue
        if subset in ("forget", "forgotten"):
            words = f"{metric.value:.1%} of {part} {subset} samples are still recognised"
            factors.append((1 - metric.value, words))
        else:
            before = 1.0 if metric.before is None else metric.before
            assumed |= metric.before is None
            lost = max(0.0, before - metric.value)
            against = "" if metric.before is None else f" ({before:.1%} before)"
            factors.append((1 - lost, f"{part} {subset} accuracy is {metric.value:.1%}{against}"))
    if known.get(("train", "forget", "accuracy"), _NOTHING).value is None:
        return Goal("erase", None, "", "unknown: there are no forget samples.")
    return _goal("erase", factors, "the original was not given, so its accuracy counts as 100%" if assumed else "")


def as_if_never_trained(known: dict[tuple[str, str, str], Metric]) -> Goal:
    """Return how near the model is to a retrained one."""
    name = "as if never trained"
    factors = []
    for (part, subset, metric_name), metric in known.items():
        of_interest = (metric_name == "accuracy" and subset) or (subset == "forget" and metric_name in BEHAVIOUR)
        if not of_interest or metric.value is None or metric.reference is None:
            continue
        words = f"{part} {subset} {metric_name.replace('_', ' ')} is {metric.value:.1%}"
        difference = abs(metric.value - metric.reference)
        factors.append((1 - difference, f"{words} (retrain {metric.reference:.1%})"))
    if not factors:
        hint = known.get(("train", "forget", "mia_population_auc"), _NOTHING).value
        words = f"; a loss attack has AUC {hint:.2f} (0.5 is chance)" if hint is not None else ""
        return Goal(name, None, "", f"unknown without a retrained reference{words}.")
    return _goal(name, factors, "")


def collapse(metrics: Iterable[Metric]) -> str:
    """Return a warning if retained accuracy collapsed, which makes forgetting worthless, or an empty string.

    >>> broken = Metric(metric="accuracy", value=0.4, better="higher", split="test", subset="adjacent", before=0.9)
    >>> collapse([broken])
    'COLLAPSE: test adjacent accuracy fell from 90.0% to 40.0%.'
    """
    fallen = []
    for metric in metrics:
        if metric.metric != "accuracy" or metric.subset not in RETAINED or metric.value is None:
            continue
        before, words = metric.before, "fell from"
        if before is None:
            before, words = metric.reference, "is below retrain's"
        if before is not None and before - metric.value > COLLAPSE:
            link = "to" if words == "fell from" else "with"
            fallen.append(f"{metric.split} {metric.subset} accuracy {words} {before:.1%} {link} {metric.value:.1%}")
    return f"COLLAPSE: {'; '.join(fallen)}." if fallen else ""


_NOTHING = Metric.absent("nothing", better="higher", note="")


def _goal(name: str, factors: Sequence[tuple[float, str]], note: str) -> Goal:
    value = math.prod(factor for factor, _ in factors)
    smallest, worst = min(factors, key=lambda pair: pair[0])
    words = f"worst: {worst}" if smallest < 1 else "nothing is missing"
    return Goal(name, value, worst if smallest < 1 else "", f"{value:.3f} of 1; {words}{f'; {note}' if note else ''}.")
