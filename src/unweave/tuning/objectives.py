"""What tuning maximises, one function a goal, on held-out training data. 1 is best, 0 worst.

- *erase*: nothing of the forget data is recognised, and all the rest is: the harmonic mean of 1 − forget accuracy,
  adjacent accuracy and remote accuracy, which one bad number of the three pulls down;
- *retrain*: as if never trained: the product over the three subsets of 1 − |accuracy − accuracy of a retrained model|
  (ToW with a factor for each).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from unweave.errors import unknown
from unweave.evaluation.predictions import Predictions, array
from unweave.evaluation.reference import tug_of_war
from unweave.split import SUBSETS

WORST = 0.0
Answers = Mapping[str, Predictions]  # a model's, by subset


def accuracies(found: Answers) -> dict[str, float]:
    """Return the accuracy on each subset."""
    return {subset: float(array(found[subset].correct).mean()) for subset in SUBSETS}


def erase(found: Answers, retrained: Answers) -> float:
    """Return the score for the goal *erase*; a retrained model has no say."""
    return erase_score(**accuracies(found))


def erase_score(*, forget: float, adjacent: float, remote: float) -> float:
    """Return the score for the goal *erase* of three accuracies.

    >>> erase_score(forget=0.0, adjacent=1.0, remote=0.5)
    0.75
    """
    return statistics.harmonic_mean([1 - forget, adjacent, remote])


def as_retrained(found: Answers, retrained: Answers) -> float:
    """Return the score for the goal *retrain*, beside a retrained model's answers."""
    return tug_of_war([array(found[name].correct) - array(retrained[name].correct) for name in SUBSETS]).value


GOALS: dict[str, Callable[[Answers, Answers], float]] = {"erase": erase, "retrain": as_retrained}
RETRAINED = ("retrain",)  # the goals that need a retrained model


def check_goal(goal: str) -> None:
    """Refuse a goal that there is not."""
    if goal not in GOALS:
        raise unknown("goal", goal, GOALS)
