"""What methods are compared by over several studies, under both goals: values of single runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from unweave.report.measures import ARROWS, Place
from unweave.report.results import Group, Results

ERASE, RETRAIN = "erase", "retrain"
AUC = Place("train", "forget", "mia_rmia_auc")


@dataclass(frozen=True)
class Measure:
    """What is compared: one value of a run, and how a person reads it."""

    name: str
    words: str
    goal: str
    better: str
    value: Callable[[Results, Group, int], float | None]
    metric: str  # whose unit and digits it has
    tested: bool = True  # against the baseline

    @property
    def heading(self) -> str:
        """What stands over its column."""
        return f"{self.words} {ARROWS[self.better]}".strip()


def value_of(results: Results, group: Group | None, place: Place, seed: int) -> float | None:
    """Return what one run measured, or None."""
    found = results.values.get(group, {}).get(place, {}).get(seed) if group else None
    return None if found is None else found.value


def _accuracy(split: str, subset: str) -> Callable[[Results, Group, int], float | None]:
    place = Place(split, subset, "accuracy")
    return lambda results, group, seed: value_of(results, group, place, seed)


def _against_original(subset: str) -> Callable[[Results, Group, int], float | None]:
    place = Place("test", subset, "accuracy")

    def value(results: Results, group: Group, seed: int) -> float | None:
        now, before = (value_of(results, g, place, seed) for g in (group, results.reference("original")))
        return None if now is None or before is None else now - before

    return value


def _against_retrained(subset: str) -> Callable[[Results, Group, int], float | None]:
    """Return the distance from the mean of the retrained models: a seed of retraining is no seed of a method."""
    place = Place("test", subset, "accuracy")

    def value(results: Results, group: Group, seed: int) -> float | None:
        now, there = value_of(results, group, place, seed), results.mean(results.reference("retrain"), place)
        return None if now is None or there is None else now - there

    return value


def _erase_score(results: Results, group: Group, seed: int) -> float | None:
    found = [
        value_of(results, group, Place("test", name, "accuracy"), seed) for name in ("forget", "adjacent", "remote")
    ]
    if any(value is None for value in found):
        return None
    forget, *kept = (float(value) for value in found if value is not None)
    return statistics.harmonic_mean([1 - forget, *kept])


def _attack_distance(results: Results, group: Group, seed: int) -> float | None:
    now, there = value_of(results, group, AUC, seed), results.mean(results.reference("retrain"), AUC)
    return None if now is None or there is None else abs(now - there)


def _at(place: Place) -> Callable[[Results, Group, int], float | None]:
    return lambda results, group, seed: value_of(results, group, place, seed)


MEASURES = (
    Measure("train_forget", "train forget", ERASE, "lower", _accuracy("train", "forget"), "accuracy"),
    Measure("test_forget", "test forget", ERASE, "lower", _accuracy("test", "forget"), "accuracy"),
    Measure("adjacent", "adjacent kept", ERASE, "higher", _against_original("adjacent"), "accuracy"),
    Measure("remote", "remote kept", ERASE, "higher", _against_original("remote"), "accuracy"),
    Measure("erase_score", "score", ERASE, "higher", _erase_score, "tow"),
    Measure(
        "gradients",
        "sample gradients",
        ERASE,
        "lower",
        _at(Place("", "", "sample_gradients")),
        "sample_gradients",
        tested=False,
    ),
    Measure("tow_split", "ToW split", RETRAIN, "higher", _at(Place("", "", "tow_split")), "tow_split"),
    Measure("attack", "RMIA distance", RETRAIN, "lower", _attack_distance, "tow"),
    Measure(
        "losses",
        "loss distance",
        RETRAIN,
        "lower",
        _at(Place("train", "forget", "loss_wasserstein")),
        "tow",
    ),
)
# The planes: where a method stands against the original, and against retrained models.
PLANES = {
    ERASE: (
        Measure("x", "test forget accuracy in %", ERASE, "lower", _accuracy("test", "forget"), "accuracy"),
        Measure(
            "y", "test adjacent accuracy − original, in points", ERASE, "", _against_original("adjacent"), "accuracy"
        ),
    ),
    RETRAIN: (
        Measure("x", "test forget − retrained, in points", RETRAIN, "", _against_retrained("forget"), "accuracy"),
        Measure("y", "test adjacent − retrained, in points", RETRAIN, "", _against_retrained("adjacent"), "accuracy"),
    ),
}
NOTES = {
    ERASE: "Kept: test accuracy minus the original's, in points. Score: harmonic mean of 1 − forget, adjacent and "
    "remote accuracy on test data.",
    RETRAIN: "ToW split: product over forget, adjacent and remote data of 1 − |accuracy − that of retraining|. RMIA "
    "distance: how far the attack's AUC on the forget data is from what it is on retrained models. Loss distance: W₂ "
    "between the forget losses and those of retrained models.",
}
