"""Compare methods over several studies, such as one for each class to forget: means, intervals, paired tests.

The seeds of one study share their data, so a mean is over studies, not over seeds. Each study counts with the mean of
its seeds. The 95% interval (Student's t) says how much other studies of the kind may differ. Each method is compared
with the baseline on the runs (study and seed) that both have, so a hard seed that one of them lacks counts for neither.
The difference is tested by a paired t test over the studies, corrected by Holm's method for all tests of the same
table: every method, every measure of the goal. A single study is compared over its seeds, without a test: its seeds say
nothing about other data.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from unweave.errors import UsageError, unknown
from unweave.lab.report.compare_estimates import MeanOverStudies, estimate, holm
from unweave.lab.report.compare_measures import MEASURES, Measure, ValueOf
from unweave.lab.report.results import Group, Results, label
from unweave.methods import all_methods, find_method

Runs = dict[tuple[int, int], float]  # the value of each run, by the index of its study and its seed


@dataclass(frozen=True)
class Comparison:
    """The estimates of every method by measure: of its values, and of their differences from the baseline."""

    studies: tuple[str, ...]
    baseline: Group
    names: dict[Group, str]
    caution: str = ""
    runs: dict[Group, frozenset[tuple[int, int]]] = field(default_factory=dict)  # study and seed
    own: dict[Group, dict[str, MeanOverStudies]] = field(default_factory=dict)
    difference: dict[Group, dict[str, MeanOverStudies]] = field(default_factory=dict)


def compare(studies: Sequence[Results], *, baseline: str = "two-stage", variants: bool = False) -> Comparison:
    """Compare all methods over these studies, with their ``variants`` or without.

    ``baseline`` is a name as the tables show it. A method's name alone means its first profile, without a variant.
    """
    _check(studies)
    groups = _groups(studies, variants=variants)
    names = {group: label(group, groups) for group in groups}
    chosen = _baseline(names, baseline)
    found = Comparison(tuple(results.benchmark for results in studies), chosen, names, studies[0].caution)
    found.runs.update({group: frozenset(_runs(studies, group)) for group in groups})
    for measure in MEASURES:
        _estimate(found, studies, measure)
    for goal in {measure.goal for measure in MEASURES}:
        _correct(found, [measure.name for measure in MEASURES if measure.goal == goal])
    return found


def _check(studies: Sequence[Results]) -> None:
    """Raise if the studies are not of one kind, or if one would count twice."""
    if len({bool(results.options.get("small")) for results in studies}) > 1:
        raise UsageError("Some of these studies are trials with --small, others are not. Compare studies of one kind.")
    folders = Counter(results.folder.resolve() for results in studies)
    if repeated := [folder for folder, count in folders.items() if count > 1]:
        raise UsageError(f"The study {repeated[0]} was given twice. Name each folder once.")
    kinds = list(dict.fromkeys(results.name for results in studies))
    if len(kinds) > 1:
        raise UsageError(
            f"These are studies of different benchmarks ({', '.join(kinds)}). Compare studies of one benchmark."
        )
    for one, other in itertools.combinations(studies, 2):
        shared = set(one.seeds) & set(other.seeds)
        if shared and one.options == other.options:
            raise UsageError(
                f"{one.folder} and {other.folder} both hold {one.benchmark} with seed {min(shared)}: as two studies "
                "they would count twice. Name one of the folders only."
            )


def _groups(studies: Sequence[Results], *, variants: bool) -> list[Group]:
    """Return the groups to compare, in the order of the studies."""
    every = [
        group
        for results in studies
        for group in results.groups
        if group in results.values and (variants or not results.is_extra(group))
    ]
    return list(dict.fromkeys(every))


def _baseline(names: dict[Group, str], wanted: str) -> Group:
    """Return the group of this name or, if a method has this name, its plainest group."""
    if not names:
        raise UsageError("These studies have no finished cell to compare. Run `unweave study` to its end first.")
    called = [group for group, name in names.items() if name == wanted]
    of_method = [group for group in names if group.method == wanted]
    if not called and not of_method:
        raise unknown("method", wanted, names.values())
    return called[0] if called else min(of_method, key=_plainest)


def _plainest(group: Group) -> tuple[bool, int]:
    """Sort the groups of a method: those without a variant first, then in the order of the method's profiles."""
    profiles = list(find_method(group.method).profiles) if group.method in all_methods() else []
    place = profiles.index(group.profile) if group.profile in profiles else len(profiles)
    return bool(group.variant), place


def _estimate(found: Comparison, studies: Sequence[Results], measure: Measure) -> None:
    """Add the estimates of one measure: of every method, and of its difference from the baseline."""
    runs = {group: runs_of(studies, group, measure.value) for group in found.names}
    theirs = runs[found.baseline]
    for group, ours in runs.items():
        own = estimate_runs(studies, ours)
        if own is None:
            continue
        found.own.setdefault(group, {})[measure.name] = own
        if group == found.baseline or group.is_reference or not measure.tested:
            continue
        both = {run: value - theirs[run] for run, value in ours.items() if run in theirs}
        apart = estimate_runs(studies, both, paired=len(studies) > 1)
        if apart is not None:
            found.difference.setdefault(group, {})[measure.name] = apart


def _correct(found: Comparison, measures: Sequence[str]) -> None:
    """Correct the p-values of these measures, which are the columns of one table, for all tests in it."""
    tested = [(of, name) for of in found.difference.values() for name in measures if name in of]
    tested = [(of, name) for of, name in tested if of[name].p is not None]
    corrected = holm([of[name].p or 0.0 for of, name in tested])
    for (of, name), value in zip(tested, corrected, strict=True):
        of[name] = of[name]._replace(holm=value)


def runs_of(studies: Sequence[Results], group: Group, value_of: ValueOf) -> Runs:
    """Return the value of every run of a group that measured a finite one."""
    found = {run: value_of(studies[run[0]], group, run[1]) for run in _runs(studies, group)}
    return {run: value for run, value in found.items() if value is not None and math.isfinite(value)}


def _runs(studies: Sequence[Results], group: Group) -> Iterable[tuple[int, int]]:
    """Return the runs of a group: the index of the study, and the seed."""
    return ((place, seed) for place, results in enumerate(studies) for seed in results.seeds_of(group))


def estimate_runs(studies: Sequence[Results], runs: Runs, *, paired: bool = False) -> MeanOverStudies | None:
    """Return the estimate over the means of the studies or, for a single study, over its seeds."""
    by_study: dict[int, list[float]] = {}
    for (place, _), value in runs.items():
        by_study.setdefault(place, []).append(value)
    means = [statistics.fmean(values) for values in by_study.values()]
    found = estimate(means if len(studies) > 1 else list(runs.values()), paired=paired)
    return found._replace(studies=len(by_study), runs=len(runs)) if found else None
