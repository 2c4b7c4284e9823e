"""The values of sentences, from `results/`: what a study or a comparison gives, in the units that people read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from places import RESULTS
from unweave.lab.report import compare, read_results
from unweave.lab.report.compare_measures import MEASURES
from unweave.lab.report.results import Group, label

PERCENT = {measure.name for measure in MEASURES if measure.metric == "accuracy"}


@cache
def rows(study: str) -> dict[str, pd.DataFrame]:
    """Return the rows of a published study by the label of their method, as the tables have it."""
    frame = pd.read_parquet(RESULTS / study / "results.parquet")
    groups = {Group(*key) for key in frame.groupby(["method", "profile", "variant"]).groups}
    keys = frame.groupby(["method", "profile", "variant"])
    return {label(group, groups): keys.get_group(tuple(group)) for group in groups}


def values(study: str, who: str, place: str, metric: str = "accuracy") -> pd.Series:
    """Return a value of every seed. ``place`` is such as ``test forget``, or empty for the whole run."""
    split, _, subset = place.partition(" ")
    frame = rows(study)[who]
    found = frame[(frame.split == split) & (frame.subset == subset) & (frame.metric == metric)]
    if found.empty:
        raise ValueError(f"{study} has no {metric} of {who} on {place!r}.")
    return found.set_index("seed").value


def at(study: str, who: str, place: str) -> float:
    """Return a mean accuracy over the seeds, in percent."""
    found = values(study, who, place)
    return 100 * float(found.groupby(found.index * 0).mean().iloc[0])  # to the last bit as the tables, which group


def lost(study: str, who: str, place: str, than: str = "original") -> float:
    """Return how many points of accuracy less than the original, or than another method, a method has."""
    return at(study, than, place) - at(study, who, place)


def gradients(study: str, who: str) -> float:
    """Return the mean number of sample gradients."""
    return float(values(study, who, "", "sample_gradients").mean())


def mean_of(study: str, who: str, place: str, metric: str) -> float:
    """Return the mean of any metric over the seeds."""
    return float(values(study, who, place, metric).mean())


@cache
def _compared(folder: str, baseline: str, variants: bool) -> Any:
    studies = sorted(path.parent for path in (RESULTS / folder).glob("*/study.json"))
    return compare([read_results(study) for study in studies], baseline=baseline, variants=variants)


def _of(folder: str, baseline: str, who: str, variants: bool, *, apart: bool) -> Any:
    found = _compared(folder, baseline, variants)
    group = next(group for group, name in found.names.items() if name == who)
    return (found.difference if apart else found.own)[group]


def own(folder: str, who: str, measure: str, *, baseline: str = "two-stage", variants: bool = False) -> list[float]:
    """Return the mean of a measure over the studies of a folder, and the half width of its interval."""
    one = _of(folder, baseline, who, variants, apart=False)[measure]
    scale = 100 if measure in PERCENT else 1
    return [scale * one.mean, scale * one.reach]


def apart(folder: str, who: str, measure: str, *, baseline: str, variants: bool = False) -> list[float]:
    """Return how far a method is from the baseline, as a size: the mean, half its interval, and the corrected p."""
    one = _of(folder, baseline, who, variants, apart=True)[measure]
    scale = 100 if measure in PERCENT else 1
    return [abs(scale * one.mean), scale * one.reach, 1.0 if one.holm is None else one.holm]


def count_tests(folder: str, goal: str, *, baseline: str, variants: bool = False) -> int:
    """Return how many tests a table of differences has."""
    found = _compared(folder, baseline, variants).difference.values()
    names = [measure.name for measure in MEASURES if measure.goal == goal]
    return sum(of[name].holm is not None for of in found for name in names if name in of)


def each(folder: str, who: str, place: str) -> dict[str, float]:
    """Return the mean accuracy of a method in every study of a folder, in percent."""
    studies = sorted(path.parent.name for path in (RESULTS / folder).glob("*/study.json"))
    return {name: at(f"{folder}/{name}", who, place) for name in studies}


def share(part: float, whole: float) -> float:
    """Return a part of a whole in percent."""
    return 100 * part / whole


def mean(numbers: Iterable[float]) -> float:
    """Return the mean."""
    return statistics.fmean(numbers)
