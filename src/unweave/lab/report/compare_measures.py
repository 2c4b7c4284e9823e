"""The measures that methods are compared by, for each goal. Each is a value of a single run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unweave.data import RETAINED
from unweave.lab.report.measures import ARROWS, SUBSETS, Place
from unweave.lab.report.results import Group, Results
from unweave.lab.tuning import erase_score

ValueOf = Callable[[Results, Group, int], float | None]  # the value of the run with this seed
Plane = tuple[tuple[str, ValueOf], tuple[str, ValueOf]]  # the name and the values of each axis
ERASE, RETRAIN = "erase", "retrain"
AUC = Place("train", "forget", "mia_rmia_auc")


@dataclass(frozen=True)
class Measure:
    """A value of a run, and how a person reads it."""

    name: str
    words: str
    goal: str
    better: str
    value: ValueOf
    metric: str  # the metric whose unit and digits it takes
    tested: bool = True  # whether it is tested against the baseline

    @property
    def heading(self) -> str:
        """The heading of its column."""
        return f"{self.words} {ARROWS[self.better]}".strip()


def _at(split: str, subset: str, metric: str) -> ValueOf:
    place = Place(split, subset, metric)
    return lambda results, group, seed: results.value(group, place, seed)


def _against_original(subset: str) -> ValueOf:
    place = Place("test", subset, "accuracy")

    def value(results: Results, group: Group, seed: int) -> float | None:
        now, before = (results.value(g, place, seed) for g in (group, results.reference("original")))
        return None if now is None or before is None else now - before

    return value


def _worse_against_original(results: Results, group: Group, seed: int) -> float | None:
    """Return the worse change of adjacent and remote accuracy: adjacent data alone would hide a loss elsewhere."""
    found = [_against_original(subset)(results, group, seed) for subset in RETAINED]
    known = [value for value in found if value is not None]
    return min(known) if len(known) == len(RETAINED) else None


def _against_retrained(subset: str) -> ValueOf:
    """Return the difference from the mean of the retrained models: their seeds are not those of the methods."""
    place = Place("test", subset, "accuracy")

    def value(results: Results, group: Group, seed: int) -> float | None:
        now, there = results.value(group, place, seed), results.mean(results.reference("retrain"), place)
        return None if now is None or there is None else now - there

    return value


def _erase_score(results: Results, group: Group, seed: int) -> float | None:
    found, original = (_known(results, one, seed) for one in (group, results.reference("original")))
    return erase_score(found, original) if len(found) == len(original) == len(SUBSETS) else None


def _known(results: Results, group: Group | None, seed: int) -> dict[str, float]:
    found = {name: results.value(group, Place("test", name, "accuracy"), seed) for name in SUBSETS}
    return {name: value for name, value in found.items() if value is not None}


def _attack_distance(results: Results, group: Group, seed: int) -> float | None:
    now, there = results.value(group, AUC, seed), results.mean(results.reference("retrain"), AUC)
    return None if now is None or there is None else abs(now - there)


MEASURES = (
    Measure("train_forget", "train forget", ERASE, "lower", _at("train", "forget", "accuracy"), "accuracy"),
    Measure("test_forget", "test forget", ERASE, "lower", _at("test", "forget", "accuracy"), "accuracy"),
    Measure("adjacent", "adjacent kept", ERASE, "higher", _against_original("adjacent"), "accuracy"),
    Measure("remote", "remote kept", ERASE, "higher", _against_original("remote"), "accuracy"),
    Measure("erase_score", "score", ERASE, "higher", _erase_score, "tow"),
    Measure(
        "gradients",
        "sample gradients",
        ERASE,
        "lower",
        _at("", "", "sample_gradients"),
        "sample_gradients",
        tested=False,
    ),
    Measure("tow_split", "ToW split", RETRAIN, "higher", _at("", "", "tow_split"), "tow_split"),
    Measure("attack", "RMIA distance", RETRAIN, "lower", _attack_distance, "tow"),
    Measure(
        "losses",
        "loss distance",
        RETRAIN,
        "lower",
        _at("train", "forget", "loss_wasserstein"),
        "tow",
    ),
)
# The plots of a comparison: relative to the original, and relative to retrained models.
PLANES: dict[str, Plane] = {
    ERASE: (
        ("test forget accuracy in %", _at("test", "forget", "accuracy")),
        ("test adjacent or remote (the worse) − original, in points", _worse_against_original),
    ),
    RETRAIN: (
        ("test forget − retrained, in points", _against_retrained("forget")),
        ("test adjacent − retrained, in points", _against_retrained("adjacent")),
    ),
}
NOTES = {
    ERASE: "Kept: test accuracy minus the original's, in points. Score: harmonic mean of 1 − forget "
    "accuracy and of the shares of the original's adjacent and remote accuracy that are kept, at most 1 each.",
    RETRAIN: "ToW split: product of 1 − |accuracy − that of retraining| over train forget, train adjacent, train "
    "remote, test adjacent and test remote data. RMIA distance: how far the attack's AUC on the forget data is from "
    "what it is on retrained models. Loss distance: W₂ between the forget losses and those of retrained models.",
}
