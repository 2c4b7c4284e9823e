"""What tuning maximises for each goal, on held-out training data. 1 is best, 0 worst.

*Accuracy* is the share of recognised samples. Of a language model's answers it is their mean probability exp(−m), m the
mean loss of the tokens: most tokens of an answer are phrasing that nothing makes a model forget, so hardly an answer is
reproduced whole or not at all.

- *erase*: the forget data is not recognised, and the rest is recognised as by the original. The score is the harmonic
  mean of 1 − forget accuracy and the shares of the original's adjacent and remote accuracy that are kept. One low
  number pulls it down. More accuracy than the original's does not count, so a method cannot gain on one subset at the
  expense of another.
- *retrain*: the model is as if never trained on the forget data. The score is the product over the three subsets of
  1 − |accuracy − accuracy of a retrained model| (ToW with a factor for each).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unweave.data import RETAINED, SUBSETS
from unweave.errors import unknown
from unweave.evaluation import Predictions, array, tug_of_war

WORST = 0.0
Answers = Mapping[str, Predictions]  # a model's, by subset


@dataclass(frozen=True)
class Objective:
    """How a trial is judged, and which trained model it is compared with."""

    words: str
    beside: str  # "original" or "retrained"
    score: Callable[[Answers, Answers], float]


def known(found: Predictions) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return how well each sample is known: whether it is recognised, or the probability of its answer."""
    if found.task.has_tokens:
        return np.asarray(np.exp(-array(found.losses)))
    return array(found.correct)


def accuracies(found: Answers) -> dict[str, float]:
    """Return the accuracy on each subset."""
    return {subset: float(known(found[subset]).mean()) for subset in SUBSETS}


def erase(found: Answers, original: Answers) -> float:
    """Return the score for the goal *erase*, given the original's predictions."""
    return erase_score(accuracies(found), accuracies(original))


def erase_score(found: Mapping[str, float], original: Mapping[str, float]) -> float:
    """Return the score for the goal *erase* from the accuracies by subset and the original's.

    >>> original = {"forget": 0.9, "adjacent": 0.8, "remote": 0.8}
    >>> erase_score({"forget": 0.0, "adjacent": 0.8, "remote": 0.4}, original)
    0.75
    >>> erase_score({"forget": 0.0, "adjacent": 0.9, "remote": 0.8}, original)
    1.0
    """
    # If the original recognises nothing of a subset, there is nothing to keep.
    kept = [min(found[name] / original[name], 1.0) if original[name] else 1.0 for name in RETAINED]
    return float(statistics.harmonic_mean([1 - found["forget"], *kept]))


def as_retrained(found: Answers, retrained: Answers) -> float:
    """Return the score for the goal *retrain*, given a retrained model's predictions."""
    return tug_of_war([known(found[name]) - known(retrained[name]) for name in SUBSETS]).value


GOALS = {
    "erase": Objective(
        "harmonic mean of 1 − forget and the shares kept of adjacent and remote accuracy", "original", erase
    ),
    "retrain": Objective("product of 1 − |accuracy − retrained accuracy| over the subsets", "retrained", as_retrained),
}


def check_goal(goal: str) -> None:
    """Raise an error for an unknown goal."""
    if goal not in GOALS:
        raise unknown("goal", goal, GOALS)
