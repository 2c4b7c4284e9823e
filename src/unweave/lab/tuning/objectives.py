"""What tuning maximises for each goal, on held-out training data. 1 is best, 0 worst.

- *erase*: nothing of the forget data is recognised, and what the original knew of the rest still is: the harmonic mean
  of 1 − forget accuracy and of the shares of the original's adjacent and remote accuracy that are kept. One bad number
  of the three pulls it down. Knowing more than the original did does not count, or a method could buy it with the rest;
- *retrain*: as if never trained: the product over the three subsets of 1 − |accuracy − accuracy of a retrained model|
  (ToW with a factor for each).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unweave.data import RETAINED, SUBSETS
from unweave.errors import unknown
from unweave.evaluation import Predictions, array, tug_of_war

WORST = 0.0
Answers = Mapping[str, Predictions]  # a model's, by subset


@dataclass(frozen=True)
class Objective:
    """How a trial is judged, and beside which trained model."""

    words: str
    beside: str  # "original" or "retrained"
    score: Callable[[Answers, Answers], float]


def accuracies(found: Answers) -> dict[str, float]:
    """Return the accuracy on each subset."""
    return {subset: float(array(found[subset].correct).mean()) for subset in SUBSETS}


def erase(found: Answers, original: Answers) -> float:
    """Return the score for the goal *erase*, beside the original's answers."""
    return erase_score(accuracies(found), accuracies(original))


def erase_score(found: Mapping[str, float], original: Mapping[str, float]) -> float:
    """Return the score for the goal *erase* of accuracies by subset, beside the original's.

    >>> original = {"forget": 0.9, "adjacent": 0.8, "remote": 0.8}
    >>> erase_score({"forget": 0.0, "adjacent": 0.8, "remote": 0.4}, original)
    0.75
    >>> erase_score({"forget": 0.0, "adjacent": 0.9, "remote": 0.8}, original)
    1.0
    """
    # An original that knows nothing of a subset leaves nothing to keep.
    kept = [min(found[name] / original[name], 1.0) if original[name] else 1.0 for name in RETAINED]
    return float(statistics.harmonic_mean([1 - found["forget"], *kept]))


def as_retrained(found: Answers, retrained: Answers) -> float:
    """Return the score for the goal *retrain*, beside a retrained model's answers."""
    return tug_of_war([array(found[name].correct) - array(retrained[name].correct) for name in SUBSETS]).value


GOALS = {
    "erase": Objective(
        "harmonic mean of 1 − forget and the shares kept of adjacent and remote accuracy", "original", erase
    ),
    "retrain": Objective("product of 1 − |accuracy − retrained accuracy| over the subsets", "retrained", as_retrained),
}


def check_goal(goal: str) -> None:
    """Refuse a goal that there is not."""
    if goal not in GOALS:
        raise unknown("goal", goal, GOALS)
