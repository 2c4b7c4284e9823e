"""Methods beside each other over several studies, such as one for each class to forget: means, intervals, paired tests.

Seeds of one study share their data, so studies, not seeds, are what a mean is over: each counts with the mean of its
seeds, and the interval (95%, Student's t) says how much other studies of the kind may differ. With a single study,
seeds take their place. A method is compared with the baseline by a paired t test on the runs (study and seed) that
both have: a hard seed that one of them lacks counts for neither.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unweave.errors import UsageError, unknown
from unweave.lab.report.compare_measures import ERASE, MEASURES, NOTES, RETRAIN, ValueOf
from unweave.lab.report.grids import Column, Entry, Grid, Row
from unweave.lab.report.measures import number
from unweave.lab.report.results import Group, Results, label
from unweave.methods import all_methods, find_method

Runs = dict[tuple[int, int], float]  # a value for each run: the number of its study, and its seed
LEVEL = 0.95
ROUNDING = 1e-12  # differences of accuracies that are equal but for rounding are nearer than this


class Estimate(NamedTuple):
    """A mean over studies, how far its interval reaches to both sides (None for one value), and p of a paired test.

    There is no p where the values do not spread: equal differences say nothing about chance.
    """

    mean: float
    reach: float | None = None
    p: float | None = None
    studies: int = 1  # that it is over
    runs: int = 1  # in all of them together

    def text(self, metric: str, *, signed: bool = False) -> str:
        """Return it for a person.

        >>> Estimate(0.025, 0.01, 0.003).text("accuracy", signed=True)
        '+2.5±1.0 p=0.003'
        """
        words = f"{'+' if signed and self.mean > 0 else ''}{number(self.mean, metric)}"
        words += "" if self.reach is None else f"±{number(self.reach, metric)}"
        return words if self.p is None else f"{words} p={self.p:.2g}"


def estimate(values: Sequence[float], *, paired: bool = False) -> Estimate | None:
    """Return mean and interval of some values; where they are paired differences, the p-value too.

    >>> found = estimate([0.1, 0.2, 0.3], paired=True)
    >>> round(found.mean, 3), round(found.reach, 3), round(found.p, 3)
    (0.2, 0.248, 0.074)
    >>> estimate([0.5]).reach, estimate([0.5, 0.5], paired=True).reach, estimate([0.5, 0.5], paired=True).p
    (None, 0.0, None)
    """
    from scipy import stats

    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Estimate(mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(count)
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * error
    if not paired or deviation <= ROUNDING:
        return Estimate(mean, reach)
    return Estimate(mean, reach, float(2 * stats.t.sf(abs(mean) / error, count - 1)))


@dataclass(frozen=True)
class Comparison:
    """Every method's estimates, by the name of the measure: its own, and its difference from the baseline."""

    studies: tuple[str, ...]
    baseline: Group
    names: dict[Group, str]
    caution: str = ""
    runs: dict[Group, frozenset[tuple[int, int]]] = field(default_factory=dict)  # study and seed
    own: dict[Group, dict[str, Estimate]] = field(default_factory=dict)
    difference: dict[Group, dict[str, Estimate]] = field(default_factory=dict)


def compare(studies: Sequence[Results], *, baseline: str = "two-stage", variants: bool = False) -> Comparison:
    """Compare all methods over these studies; with their ``variants``, or only as they are.

    ``baseline`` is named as the tables name it; the name of a method alone means it as it is, in its first profile.
    """
    if len({bool(results.options.get("small")) for results in studies}) > 1:
        raise UsageError("Some of these studies are trials with --small, others are not. Compare those of one kind.")
    if len({results.folder.resolve() for results in studies}) < len(studies):
        raise UsageError("A study was given twice. Name each folder once.")
    if len({results.name for results in studies}) > 1:
        kinds = ", ".join(dict.fromkeys(results.name for results in studies))
        raise UsageError(f"These are studies of different benchmarks ({kinds}). Compare those of one.")
    for one, other in itertools.combinations(studies, 2):
        shared = set(one.seeds) & set(other.seeds) if one.options == other.options else set()
        if shared:
            raise UsageError(
                f"{one.folder} and {other.folder} both hold {one.benchmark} with seed {min(shared)}: as two studies "
                "they would count twice. Give one of them."
            )
    groups = list(
        dict.fromkeys(
            group
            for results in studies
            for group in results.groups
            if group in results.values and (variants or not results.is_extra(group))
        )
    )
    names = {group: label(group, groups) for group in groups}
    called = [group for group, name in names.items() if name == baseline]
    chosen = next(iter(called + sorted((group for group in groups if group.method == baseline), key=_plainest)), None)
    if not names:
        raise UsageError("These studies have no finished cell that can be compared.")
    if chosen is None:
        raise unknown("method", baseline, names.values())
    found = Comparison(tuple(results.benchmark for results in studies), chosen, names, studies[0].caution)
    found.runs.update({group: _runs_held(studies, group) for group in groups})
    for measure in MEASURES:
        theirs = runs_of(studies, chosen, measure.value)
        for group in groups:
            ours = runs_of(studies, group, measure.value)
            own = estimate_runs(studies, ours)
            if own is None:
                continue
            found.own.setdefault(group, {})[measure.name] = own
            if group == chosen or group.is_reference or not measure.tested:
                continue
            both = {run: value - theirs[run] for run, value in ours.items() if run in theirs}
            apart = estimate_runs(studies, both, paired=True)
            if apart is not None:
                found.difference.setdefault(group, {})[measure.name] = apart
    return found


def runs_of(studies: Sequence[Results], group: Group, value_of: ValueOf) -> Runs:
    """Return what every run of a group measured, as far as it did."""
    found = {
        (place, seed): value_of(results, group, seed)
        for place, results in enumerate(studies)
        for seed in results.seeds_of(group)
    }
    return {run: value for run, value in found.items() if value is not None and math.isfinite(value)}


def _runs_held(studies: Sequence[Results], group: Group) -> frozenset[tuple[int, int]]:
    return frozenset((place, seed) for place, results in enumerate(studies) for seed in results.seeds_of(group))


def _plainest(group: Group) -> tuple[bool, int]:
    """Order the groups of a method: without a variant first, then by profile as the method has them."""
    profiles = list(find_method(group.method).profiles) if group.method in all_methods() else []
    place = profiles.index(group.profile) if group.profile in profiles else len(profiles)
    return bool(group.variant), place


def estimate_runs(studies: Sequence[Results], runs: Runs, *, paired: bool = False) -> Estimate | None:
    """Return the estimate over the means of the studies, or over the seeds where there is one study."""
    by_study: dict[int, list[float]] = {}
    for (place, _), value in runs.items():
        by_study.setdefault(place, []).append(value)
    means = [statistics.fmean(values) for values in by_study.values()]
    found = estimate(means if len(studies) > 1 else list(runs.values()), paired=paired)
    return found._replace(studies=len(by_study), runs=len(runs)) if found else None


def grids(found: Comparison) -> list[Grid]:
    """Return the tables: one for each goal, and the differences from the baseline.

    Where methods differ in how many runs they have, every row says its own number, and so does a value of fewer.
    """
    tables = []
    for goal, title in ((ERASE, "Goal erase"), (RETRAIN, "Goal retrain: as if never trained")):
        tables += _grid(found, goal, title)
    for goal in (ERASE, RETRAIN):
        tables += _grid(found, goal, f"Goal {goal}: difference from {found.names[found.baseline]}", paired=True)
    return tables


def _grid(found: Comparison, goal: str, title: str, *, paired: bool = False) -> list[Grid]:
    """Return the table of a goal, if anything of it was measured."""
    shown = [measure for measure in MEASURES if measure.goal == goal]
    values = {
        group: {measure.name: of[measure.name] for measure in shown if measure.name in of}
        for group, of in (found.difference if paired else found.own).items()
    }
    values = {group: values[group] for group in found.names if values.get(group)}
    shown = [measure for measure in shown if any(measure.name in of for of in values.values())]
    if not shown:
        return []
    runs = {group: max(one.runs for one in of.values()) for group, of in values.items()}
    uneven = len({count for group, count in runs.items() if not group.is_reference}) > 1
    apart = len({found.runs[group] for group in values if not group.is_reference}) > 1
    rows, records = [], []
    for group, of in values.items():
        cells = [Entry(str(runs[group]))] if uneven else []
        record: dict[str, Any] = {**group._asdict(), "runs": runs[group]}
        for measure in shown:
            one = of.get(measure.name)
            fewer = f" ({_plural(one.runs, 'run')})" if one and one.runs < runs[group] else ""
            cells.append(Entry(one.text(measure.metric, signed=paired) + fewer if one else "–"))
            for part in ("mean", "reach", *(("p",) if paired else ()), "runs"):
                record[f"{measure.name}_{part}"] = getattr(one, part) if one else None
        rows.append(Row(found.names[group], tuple(cells)))
        records.append(record)
    spreads = any(one.reach is not None for of in values.values() for one in of.values())
    over = f"Mean{' ± 95% interval' if spreads else ''} over {_over(found, values)}"
    notes = [f"{over}; ↓ lower is better, ↑ higher.", NOTES[goal]]
    if paired:
        notes = [f"{over}, and p of a paired t test where differences spread; not corrected for their number."]
    if apart and not paired:
        notes.append("Not every method was run in the same studies with the same seeds: rows are means over others.")
    notes = [*filter(None, [found.caution]), *notes]
    columns = (*([Column("runs")] if uneven else []), *(Column(measure.heading) for measure in shown))
    name = f"compare-{goal}-paired" if paired else f"compare-{goal}"
    return [Grid(name, title, columns, tuple(rows), records, tuple(notes))]


def _over(found: Comparison, values: Mapping[Group, Mapping[str, Estimate]]) -> str:
    """Return what the means of a table are over, in words; retrained models have their own number of runs."""
    own = [one for group, of in values.items() if not group.is_reference for one in of.values()]
    over = _range([one.studies for one in own], "study") if len(found.studies) > 1 else "the seeds of one study"
    return f"{over} ({_range([one.runs for one in own], 'run')} of a method)" if own else over


def _range(counts: Sequence[int], word: str) -> str:
    """Return how many of something there are, in words.

    >>> _range([2, 4, 2], "run"), _range([1], "study"), _range([], "study")
    ('2 to 4 runs', '1 study', '0 studies')
    """
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{f'{low} to ' if low < high else ''}{_plural(high, word)}"


def _plural(count: int, word: str) -> str:
    several = f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word if count == 1 else several}"
