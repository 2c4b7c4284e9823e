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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unweave.errors import UsageError, unknown
from unweave.report.compare_measures import ERASE, MEASURES, NOTES, RETRAIN, ValueOf
from unweave.report.grids import Column, Entry, Grid, Row
from unweave.report.measures import number
from unweave.report.results import Group, Results, label

LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over studies, how far its interval reaches to both sides (None for one value), and p of a paired test."""

    mean: float
    reach: float | None = None
    p: float | None = None

    def text(self, metric: str, *, signed: bool = False) -> str:
        """Return it for a person.

        >>> Estimate(0.025, 0.01, 0.003).text("accuracy", signed=True)
        '+2.5±1.0 p=0.003'
        """
        words = f"{'+' if signed and self.mean > 0 else ''}{number(self.mean, metric)}"
        words += f"±{number(self.reach, metric)}" if self.reach else ""
        return words if self.p is None else f"{words} p={self.p:.2g}"


def estimate(values: Sequence[float], *, paired: bool = False) -> Estimate | None:
    """Return mean and interval of some values; where they are paired differences, the p-value too.

    >>> found = estimate([0.1, 0.2, 0.3], paired=True)
    >>> round(found.mean, 3), round(found.reach, 3), round(found.p, 3)
    (0.2, 0.248, 0.074)
    >>> estimate([0.5])
    Estimate(mean=0.5, reach=None, p=None)
    """
    from scipy import stats

    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Estimate(mean)
    error = statistics.stdev(values) / math.sqrt(count)
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * error
    if not paired:
        return Estimate(mean, reach)
    return Estimate(mean, reach, float(2 * stats.t.sf(abs(mean) / error, count - 1)) if error else float(mean == 0))


@dataclass(frozen=True)
class Comparison:
    """Every method's estimates, by the name of the measure: its own, and its difference from the baseline."""

    studies: tuple[str, ...]
    baseline: Group
    names: dict[Group, str]
    runs: dict[Group, int]  # in all studies together
    pairs: dict[Group, int]  # of these, the ones that the baseline has too
    own: dict[Group, dict[str, Estimate]] = field(default_factory=dict)
    difference: dict[Group, dict[str, Estimate]] = field(default_factory=dict)


def compare(studies: Sequence[Results], *, baseline: str = "two-stage", variants: bool = False) -> Comparison:
    """Compare all methods over these studies; with their ``variants``, or only as they are.

    ``baseline`` is named as the tables name it; of a method with several profiles its name alone means the first.
    """
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
    chosen = next(iter(called + [group for group in groups if group.method == baseline]), None)
    if chosen is None:
        raise unknown("method", baseline, names.values())
    seeds = {group: {(at, seed) for at, one in enumerate(studies) for seed in one.seeds_of(group)} for group in groups}
    runs = {group: len(some) for group, some in seeds.items()}
    pairs = {group: len(some & seeds[chosen]) for group, some in seeds.items()}
    found = Comparison(tuple(results.benchmark for results in studies), chosen, names, runs, pairs)
    for measure in MEASURES:
        for group in groups:
            own = estimate(list(units(studies, group, measure.value).values()))
            if own is None:
                continue
            found.own.setdefault(group, {})[measure.name] = own
            if group == chosen or group.is_reference or not measure.tested:
                continue
            ours = units(studies, group, measure.value, shared=chosen)
            theirs = units(studies, chosen, measure.value, shared=group)
            apart = estimate([ours[unit] - theirs[unit] for unit in ours], paired=True)
            if apart is not None:
                found.difference.setdefault(group, {})[measure.name] = apart
    return found


def units(
    studies: Sequence[Results], group: Group, value_of: ValueOf, *, shared: Group | None = None
) -> dict[tuple[int, int], float]:
    """Return the values that a mean is over: of each study, or of each seed where there is one study.

    Only of runs that the group ``shared``, if given, has too.
    """
    found: dict[tuple[int, int], list[float]] = {}
    for place, results in enumerate(studies):
        for seed in results.seeds_of(group):
            value = value_of(results, group, seed)
            if value is not None and (shared is None or value_of(results, shared, seed) is not None):
                found.setdefault((place, -1) if len(studies) > 1 else (place, seed), []).append(value)
    return {unit: statistics.fmean(values) for unit, values in found.items()}


def grids(found: Comparison) -> list[Grid]:
    """Return the tables: one for each goal, and the differences from the baseline.

    Where methods differ in how many runs they have, every row says its own number.
    """
    note = f"Mean ± 95% interval over {_over(found, found.own, found.runs)}; ↓ lower is better, ↑ higher."
    tables = []
    for goal, title in ((ERASE, "Goal erase"), (RETRAIN, "Goal retrain: as if never trained")):
        tables += _grid(found, goal, title, (note, NOTES[goal]))
    over = _over(found, found.difference, found.pairs)
    note = f"Mean ± 95% interval over {over}, and p of a paired t test; not corrected for their number."
    for goal in (ERASE, RETRAIN):
        tables += _grid(
            found, goal, f"Goal {goal}: difference from {found.names[found.baseline]}", (note,), paired=True
        )
    return tables


def _over(found: Comparison, rows: Iterable[Group], runs: Mapping[Group, int]) -> str:
    """Return what the means of these rows are over, in words."""
    over = f"{len(found.studies)} studies" if len(found.studies) > 1 else "the seeds of one study"
    counts = _counts(rows, runs)
    few = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{over} ({few}{counts[-1]} runs of a method)" if counts else over


def _counts(rows: Iterable[Group], runs: Mapping[Group, int]) -> list[int]:
    """Return the different numbers of runs that methods have; retrained models have their own."""
    return sorted({runs[group] for group in rows if not group.is_reference})


def _grid(found: Comparison, goal: str, title: str, notes: tuple[str, ...], *, paired: bool = False) -> list[Grid]:
    """Return the table of a goal, if anything of it was measured."""
    values, runs = (found.difference, found.pairs) if paired else (found.own, found.runs)
    shown = [m for m in MEASURES if m.goal == goal and any(m.name in of for of in values.values())]
    if not shown:
        return []
    uneven = len(_counts(values, runs)) > 1
    rows, records = [], []
    for group in found.names:
        of = values.get(group, {})
        if not of:
            continue
        cells = [Entry(str(runs[group]))] if uneven else []
        record: dict[str, Any] = {**group._asdict(), "runs": runs[group]}
        for measure in shown:
            one = of.get(measure.name)
            cells.append(Entry(one.text(measure.metric, signed=paired) if one else "–"))
            for part in ("mean", "reach", *(("p",) if paired else ())):
                record[f"{measure.name}_{part}"] = getattr(one, part) if one else None
        rows.append(Row(found.names[group], tuple(cells)))
        records.append(record)
    columns = (*([Column("runs")] if uneven else []), *(Column(measure.heading) for measure in shown))
    name = f"compare-{goal}-paired" if paired else f"compare-{goal}"
    return [Grid(name, title, columns, tuple(rows), records, notes)]
