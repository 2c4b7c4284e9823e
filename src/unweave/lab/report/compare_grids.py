"""The tables of a comparison: one for each goal, and the differences from the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.lab.report.compare import Comparison
from unweave.lab.report.compare_estimates import MeanOverStudies
from unweave.lab.report.compare_measures import ERASE, MEASURES, NOTES, RETRAIN, Measure
from unweave.lab.report.grids import Column, Entry, Grid, Row
from unweave.lab.report.results import Group

TITLES = {ERASE: "Goal erase", RETRAIN: "Goal retrain: as if never trained"}


@dataclass(frozen=True)
class _Shown:
    """The part of a comparison that one table shows, and the number of runs of each row."""

    measures: list[Measure]
    values: dict[Group, dict[str, MeanOverStudies]]
    runs: dict[Group, int]

    @property
    def own(self) -> dict[Group, dict[str, MeanOverStudies]]:
        """The values of methods, without references: retrained models have their own number of runs."""
        return {group: of for group, of in self.values.items() if not group.is_reference}

    @property
    def uneven(self) -> bool:
        """Whether the methods have different numbers of runs."""
        return len({self.runs[group] for group in self.own}) > 1


def grids(found: Comparison) -> list[Grid]:
    """Return the tables: one for each goal, and one for each goal with the differences from the baseline.

    Where methods have different numbers of runs, every row names its own, and so does a value over fewer runs.
    """
    plain = [_grid(found, goal, title) for goal, title in TITLES.items()]
    baseline = found.names[found.baseline]
    paired = [_grid(found, goal, f"Goal {goal}: difference from {baseline}", paired=True) for goal in TITLES]
    return [grid for grid in (*plain, *paired) if grid]


def _grid(found: Comparison, goal: str, title: str, *, paired: bool = False) -> Grid | None:
    """Return the table of a goal, or None if nothing was measured for it."""
    shown = _select(found, goal, paired=paired)
    if not shown.measures:
        return None
    rows = [Row(found.names[group], _entries(shown, group, paired=paired)) for group in shown.values]
    records = [_record(shown, group, paired=paired) for group in shown.values]
    columns = [Column(measure.heading) for measure in shown.measures]
    columns = [Column("runs"), *columns] if shown.uneven else columns
    name = f"compare-{goal}-paired" if paired else f"compare-{goal}"
    return Grid(name, title, tuple(columns), tuple(rows), records, _notes(found, shown, goal, paired=paired))


def _select(found: Comparison, goal: str, *, paired: bool) -> _Shown:
    estimates = found.difference if paired else found.own
    measures = [
        measure for measure in MEASURES if measure.goal == goal and any(measure.name in of for of in estimates.values())
    ]
    values = {}
    for group in found.names:
        of = estimates.get(group, {})
        if own := {measure.name: of[measure.name] for measure in measures if measure.name in of}:
            values[group] = own
    return _Shown(measures, values, {group: max(one.runs for one in of.values()) for group, of in values.items()})


def _entries(shown: _Shown, group: Group, *, paired: bool) -> tuple[Entry, ...]:
    entries = [Entry(str(shown.runs[group]))] if shown.uneven else []
    for measure in shown.measures:
        one = shown.values[group].get(measure.name)
        if one is None:
            entries.append(Entry("–"))
            continue
        fewer = f" ({_plural(one.runs, 'run')})" if one.runs < shown.runs[group] else ""
        entries.append(Entry(one.text(measure.metric, signed=paired) + fewer))
    return tuple(entries)


def _record(shown: _Shown, group: Group, *, paired: bool) -> dict[str, Any]:
    """Return a row as a record for programs."""
    record: dict[str, Any] = {**group._asdict(), "runs": shown.runs[group]}
    parts = ("mean", "reach", "p", "holm", "runs") if paired else ("mean", "reach", "runs")
    for measure in shown.measures:
        one = shown.values[group].get(measure.name)
        record |= {f"{measure.name}_{part}": getattr(one, part, None) for part in parts}
    return record


def _notes(found: Comparison, shown: _Shown, goal: str, *, paired: bool) -> tuple[str, ...]:
    spreads = any(one.reach is not None for of in shown.values.values() for one in of.values())
    over = f"Mean{' ± 95% interval' if spreads else ''} over {_over(found, shown.own)}"
    caution = [found.caution] if found.caution else []
    if paired:
        tests = sum(one.holm is not None for of in shown.values.values() for one in of.values())
        tested = f" p is of a paired t test over the studies, corrected by Holm's method for all {tests} tests here."
        return (*caution, f"{over}.{tested if tests else ''}")
    notes = [*caution, f"{over}; ↓ lower is better, ↑ higher.", NOTES[goal]]
    if len({found.runs[group] for group in shown.own}) > 1:
        notes.append(
            "Not every method was run in the same studies with the same seeds: rows are means over different runs."
        )
    return tuple(notes)


def _over(found: Comparison, values: Mapping[Group, Mapping[str, MeanOverStudies]]) -> str:
    """Say in words over how many studies and runs the means of a table are."""
    own = [one for of in values.values() for one in of.values()]
    over = _range([one.studies for one in own], "study") if len(found.studies) > 1 else "the seeds of one study"
    return f"{over} ({_range([one.runs for one in own], 'run')} of a method)" if own else over


def _range(counts: Sequence[int], word: str) -> str:
    """Return a count, or a range of counts, in words.

    >>> _range([2, 4, 2], "run"), _range([1], "study"), _range([], "study")
    ('2 to 4 runs', '1 study', '0 studies')
    """
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{f'{low} to ' if low < high else ''}{_plural(high, word)}"


def _plural(count: int, word: str) -> str:
    several = f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word if count == 1 else several}"
