"""A section of the report for each named study: its question, and the tables and figures that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unweave.report.grids import Grid, attack_places, grid, other_places
from unweave.report.measures import COSTS, SPLITS, SUBSETS, Place
from unweave.report.paper import preset_grid
from unweave.report.results import Group, Results

WORDS = {"accuracy": "Accuracy", "cost": "Cost", "membership": "Membership attacks", "other": "Beside retraining"}
DYNAMICS = "dynamics"


@dataclass(frozen=True)
class Section:
    """A named study in the report."""

    name: str
    summary: str
    grids: tuple[Grid, ...]
    labels: dict[Group, str]
    dynamics: bool = False  # whether its runs are shown step by step


def sections(results: Results, *, against_paper: bool = False) -> list[Section]:
    """Return a section for every named study of the folder that has a run."""
    found = []
    for name, preset in results.about.get("presets", {}).items():
        labels = row_labels(results, preset)
        if not labels:
            continue
        grids = [_grid(results, name, kind, labels) for kind in preset["shows"] if kind != DYNAMICS]
        beside = preset_grid(results, name, labels) if against_paper else None
        tables = tuple(table for table in (*grids, beside) if table)
        found.append(Section(name, str(preset["summary"]), tables, labels, dynamics=DYNAMICS in preset["shows"]))
    return found


def row_labels(results: Results, preset: Mapping[str, Any]) -> dict[Group, str]:
    """Return the rows of a named study with names that say what they differ in, defaults included."""
    wanted = [Group(*row) for row in preset["rows"]]
    groups = [group for group in results.groups if group in wanted]
    told = [*preset["about"], *(["adjacency"] if any("adjacency" in group.differences for group in groups) else [])]
    found = {}
    for group in groups:
        parts = [] if group.is_reference else [f"{name}={_short(results.setting(group, name))}" for name in told]
        plain = Group(group.method, group.profile, "")
        found[group] = " ".join([results.label(plain), *parts])
    return found


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
