"""The numbers behind a verdict: what is still recognised, and what is lost on data to keep."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from unweave.data import RETAINED
from unweave.lab.report.measures import SPLITS, SUBSETS, Place
from unweave.lab.report.results import Group, Results

KEPT = 0.02
COLLAPSE = 0.10  # as in the evaluation's goals
HARDLY = 0.1  # test data must be recognised this well, beside training data, to tell what was kept
FORGOTTEN = 0.05  # a method forgets if it recognises at most this share of the forget samples
SAME = 1e-9  # tolerance for rounding: 0.98 − 0.96 is slightly more than 0.02
ACCURACIES = tuple(Place(split, subset, "accuracy") for split in SPLITS for subset in SUBSETS)
KEPT_PLACES = tuple(place for place in ACCURACIES if place.subset in RETAINED)


def recognised(results: Results, group: Group) -> float | None:
    """Return the share of forget samples that is still recognised, in training data or, without any, in test data."""
    train = results.mean(group, Place("train", "forget", "accuracy"))
    return results.mean(group, Place("test", "forget", "accuracy")) if train is None else train


def losses(results: Results, group: Group, original: Group) -> dict[Place, float]:
    """Return the mean loss of accuracy against the original at every place that counts."""
    pairs = {place: paired(results, group, original, place) for place in judged(results, group, original)}
    return {place: fmean(before) - fmean(now) if now else 0.0 for place, (now, before) in pairs.items()}


def lost_in(results: Results, group: Group, original: Group, seed: int) -> float:
    """Return the largest loss of accuracy of one seed on data to keep, against the original of the same seed."""
    found = [0.0]
    for place in judged(results, group, original):
        now, before = (results.value(one, place, seed) for one in (group, original))
        if now is not None and before is not None:
            found.append(before - now)
    return max(found)


def judged(results: Results, group: Group, original: Group) -> list[Place]:
    """Return the places that count for what a method keeps: of each subset test data that can tell, or training data.

    Test data of which the original recognises hardly any, beside training data, cannot tell: a language model does not
    know facts that it was not trained on.
    """
    found = []
    for subset in RETAINED:
        test, train = (Place(split, subset, "accuracy") for split in ("test", "train"))
        known = results.mean(original, test) or 0.0
        can_tell = known >= HARDLY * (results.mean(original, train) or 0.0)
        there = bool(paired(results, group, original, test)[0])
        found.append(test if there and can_tell else train)
    shared = [place for place in KEPT_PLACES if paired(results, group, original, place)[0]]
    return [place for place in found if place in shared] or shared


def paired(results: Results, group: Group, original: Group, place: Place) -> tuple[list[float], list[float]]:
    """Return the values of both in the seeds that both have: other seeds may be easier or harder."""
    ours, theirs = (results.values[one].get(place, {}) for one in (group, original))
    seeds = [seed for seed in ours if seed in theirs]
    return [ours[seed].value for seed in seeds], [theirs[seed].value for seed in seeds]


def is_paired(results: Results, group: Group, original: Group) -> bool:
    """Tell whether a method and the original have a seed in common."""
    return any(paired(results, group, original, place)[0] for place in KEPT_PLACES)


def distance(results: Results, group: Group, retrain: Group) -> float:
    """Return the mean absolute difference from the retrained model over the six accuracies."""
    pairs = [(results.mean(group, place), results.mean(retrain, place)) for place in ACCURACIES]
    gaps = [abs(mine - theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return sum(gaps) / len(gaps) if gaps else float("inf")


def order(results: Results, group: Group) -> tuple[float, float, float]:
    """Sort by what is still recognised in training data, then in test data, then by adjacent test accuracy."""
    test = results.mean(group, Place("test", "forget", "accuracy"))
    adjacent = results.mean(group, Place("test", "adjacent", "accuracy"))
    return (recognised(results, group) or 0.0, test or 0.0, -(adjacent or 0.0))


def percent(value: float | None) -> str:
    """Return a fraction as a person reads it."""
    return "an unknown share" if value is None else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """Return a difference of fractions as a person reads it."""
    return f"{100 * value:.1f} points"


def names_of(results: Results, groups: Iterable[Group]) -> str:
    """Return the names of some methods as in a sentence."""
    return listed(results.label(group) for group in groups)


def listed(names: Iterable[str]) -> str:
    """Join names as in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
