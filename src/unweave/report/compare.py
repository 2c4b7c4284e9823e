"""Methods beside each other over several studies, such as one for each class to forget: means, intervals, paired tests.

Seeds of one study share their data, so studies, not seeds, are what a mean is over: each counts with the mean of its
seeds, and the interval (95%, Student's t) says how much other studies of the kind may differ. With a single study,
seeds take their place. A method is compared with the baseline on the studies that both have, by a paired t test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unweave.errors import UsageError, unknown
from unweave.report.compare_measures import ERASE, MEASURES, NOTES, RETRAIN, Measure, ValueOf
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
    own: dict[Group, dict[str, Estimate]] = field(default_factory=dict)
    difference: dict[Group, dict[str, Estimate]] = field(default_factory=dict)


def compare(studies: Sequence[Results], *, baseline: str = "two-stage", variants: bool = False) -> Comparison:
    """Compare all methods over these studies; with their ``variants``, or only as they are.

    ``baseline`` is named as the tables name it.
    """
    if len({results.folder.resolve() for results in studies}) < len(studies):
        raise UsageError("A study was given twice. Name each folder once.")
    if len({results.name for results in studies}) > 1:
        kinds = ", ".join(dict.fromkeys(results.name for results in studies))
        raise UsageError(f"These are studies of different benchmarks ({kinds}). Compare those of one.")
    groups = list(
        dict.fromkeys(
            group
            for results in studies
            for group in results.groups
            if group in results.values and (variants or not results.is_extra(group))
        )
    )
    names = {group: label(group, groups) for group in groups}
    chosen = next((group for group, name in names.items() if name == baseline), None)
    if chosen is None:
        raise unknown("method", baseline, names.values())
    runs = {group: sum(len(results.seeds_of(group)) for results in studies) for group in groups}
    found = Comparison(tuple(results.benchmark for results in studies), chosen, names, runs)
    for measure in MEASURES:
        every = {group: units(studies, group, measure.value) for group in groups}
        for group, values in every.items():
            own = estimate(list(values.values()))
            if own is None:
                continue
            found.own.setdefault(group, {})[measure.name] = own
            common = [unit for unit in values if unit in every[chosen]]
            apart = estimate([values[unit] - every[chosen][unit] for unit in common], paired=True)
            if apart is not None and group != chosen and measure.tested and not group.is_reference:
                found.difference.setdefault(group, {})[measure.name] = apart
    return found


def units(studies: Sequence[Results], group: Group, value_of: ValueOf) -> dict[tuple[int, int], float]:
    """Return the values that a mean is over: of each study, or of each seed where there is one study."""
    found: dict[tuple[int, int], list[float]] = {}
    for place, results in enumerate(studies):
        for seed in results.seeds_of(group):
            value = value_of(results, group, seed)
            if value is not None:
                found.setdefault((place, -1) if len(studies) > 1 else (place, seed), []).append(value)
    return {unit: statistics.fmean(values) for unit, values in found.items()}


def grids(found: Comparison) -> list[Grid]:
    """Return the tables: one for each goal, and the differences from the baseline."""
    over = f"{len(found.studies)} studies" if len(found.studies) > 1 else "the seeds of one study"
    runs = sorted({count for group, count in found.runs.items() if not group.is_reference})
    over += f" ({runs[0]} runs of a method)" if len(runs) == 1 else f" ({runs[0]} to {runs[-1]} runs of a method)"
    note = f"Mean ± 95% interval over {over}; ↓ lower is better, ↑ higher."
    tables = []
    for goal, title in ((ERASE, "Goal erase"), (RETRAIN, "Goal retrain: as if never trained")):
        shown = [m for m in MEASURES if m.goal == goal and any(m.name in own for own in found.own.values())]
        if shown:
            tables.append(_grid(found, f"compare-{goal}", title, shown, found.own, (note, NOTES[goal])))
    rival = found.names[found.baseline]
    note = f"Mean ± 95% interval over {over}, and p of a paired t test; not corrected for their number."
    for goal in (ERASE, RETRAIN):
        shown = [m for m in MEASURES if m.goal == goal and any(m.name in of for of in found.difference.values())]
        if shown:
            title = f"Goal {goal}: difference from {rival}"
            tables.append(_grid(found, f"compare-{goal}-paired", title, shown, found.difference, (note,), signed=True))
    return tables


def _grid(
    found: Comparison,
    name: str,
    title: str,
    shown: Sequence[Measure],
    values: dict[Group, dict[str, Estimate]],
    notes: tuple[str, ...],
    *,
    signed: bool = False,
) -> Grid:
    rows, records = [], []
    for group in found.names:
        of = values.get(group, {})
        if not of:
            continue
        cells = []
        record: dict[str, Any] = {**group._asdict(), "runs": found.runs[group]}
        for measure in shown:
            one = of.get(measure.name)
            cells.append(Entry(one.text(measure.metric, signed=signed) if one else "–"))
            for part in ("mean", "reach", *(("p",) if signed else ())):
                record[f"{measure.name}_{part}"] = getattr(one, part) if one else None
        rows.append(Row(found.names[group], tuple(cells)))
        records.append(record)
    columns = tuple(Column(measure.heading) for measure in shown)
    return Grid(name, title, columns, tuple(rows), records, notes)
