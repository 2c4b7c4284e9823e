"""The sections of a report, one for each named study: its question, and the tables that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.lab.report.grids import LEGEND, MARKED, Grid, attack_places, grid, other_places
from unweave.lab.report.measures import COSTS, SPLITS, SUBSETS, Place
from unweave.lab.report.paper import preset_grid
from unweave.lab.report.results import Group, Results

WORDS = {"accuracy": "Accuracy", "cost": "Cost", "membership": "Membership attacks", "other": "Beside retraining"}
DYNAMICS = "dynamics"


@dataclass(frozen=True)
class Section:
    """A named study in the report."""

    name: str
    summary: str
    grids: tuple[Grid, ...]
    labels: dict[Group, str]
    everything: bool = False  # whether its rows are those of the main tables, which the page does not repeat
    dynamics: bool = False  # whether its runs are shown step by step

    @property
    def notes(self) -> list[str]:
        """The notes of its tables without repetitions, and without those in the legend of the page."""
        every = dict.fromkeys(note for grid in self.grids for note in grid.notes)
        return [note for note in every if note not in (LEGEND, MARKED)]


def sections(results: Results, *, against_paper: bool = False) -> list[Section]:
    """Return a section for every named study that has a run in the folder."""
    found = []
    for name, preset in results.about.get("presets", {}).items():
        labels = row_labels(results, preset)
        if not labels:
            continue
        grids = [_grid(results, name, kind, labels) for kind in preset["shows"] if kind != DYNAMICS]
        beside = preset_grid(results, name, labels) if against_paper else None
        tables = tuple(table for table in (*grids, beside) if table)
        found.append(
            Section(
                name,
                str(preset["summary"]),
                tables,
                labels,
                everything={*labels} == {group for group in results.groups if not results.is_extra(group)},
                dynamics=DYNAMICS in preset["shows"],
            )
        )
    return found


def row_labels(results: Results, preset: Mapping[str, Any]) -> dict[Group, str]:
    """Return the rows of a named study in its order. Their names give the settings they differ in, also defaults."""
    there = results.groups
    groups = [group for group in (Group(*row) for row in preset["rows"]) if group in there]
    own = [group for group in groups if not group.is_reference]
    told = list(preset["about"])
    if any("adjacency" in group.differences for group in own):
        told.append("adjacency")
    one_kind = bool(told) and len({(group.method, group.profile) for group in own}) == 1
    found = {}
    for group in sorted(groups, key=lambda group: not group.is_reference):
        differences = _differences(results, group, told)
        name = [] if differences and one_kind else [results.label(Group(group.method, group.profile, ""))]
        found[group] = " ".join([*name, *differences])
    return found


def _differences(results: Results, group: Group, told: Sequence[str]) -> list[str]:
    """Return the settings of a row: those that every row names, then the others that its variant changes."""
    values = {} if group.is_reference else {name: results.setting(group, name) for name in told}
    parts = [f"{name}={_short(value)}" for name, value in values.items() if value is not None]
    return parts + [f"{name}={value}" for name, value in group.differences.items() if name not in told]


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _grid(results: Results, name: str, kind: str, labels: dict[Group, str]) -> Grid | None:
    plans = {
        "accuracy": [Place(split, subset, "accuracy") for split in SPLITS for subset in SUBSETS],
        "cost": [Place("", "", cost) for cost in COSTS],
        "membership": attack_places(results),
        "other": [place for place in other_places(results) if not place.split],
    }
    there = {place for group in labels for place in results.values.get(group, {})}
    places = [place for place in plans[kind] if place in there]
    return grid(results, f"study-{name}-{kind}", WORDS[kind], places, rows=labels) if places else None
