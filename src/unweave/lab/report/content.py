"""The data of the page as plain JSON: every number as it is stored, and the text that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unweave.data import RETAINED
from unweave.lab.report.answer_texts import answer_texts
from unweave.lab.report.grids import Grid, group_marks, seeds_text
from unweave.lab.report.headline import Headline
from unweave.lab.report.looks import PAGE_MARKERS, Appearance, looks
from unweave.lab.report.meanings import axis_of, meaning
from unweave.lab.report.measures import ARROWS, Place, number, title, unit
from unweave.lab.report.results import Group, Results

POINTS = 160  # points of one logged series on the page; more could not be told apart
ALL_POINTS = 120_000  # points of all series together, so that the page of a large study can still be mailed
PLANES = (  # what the trade-off plane can show, what it shows first on top
    ("answers", "probability"),
    ("answers", "rouge"),
    ("test", "accuracy"),
    ("train", "accuracy"),
    ("answers", "exact_memorisation"),
    ("answers", "extraction_strength"),
)


def page_content(
    results: Results,
    grids: Sequence[Grid],
    verdict: Headline,
    paper_notes: Sequence[str],
    *,
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return everything that the page's script reads. It refers to groups and places by index."""
    groups = results.groups
    shown = looks(groups)
    places = sorted(results.places(), key=lambda place: place.metric == "samples")
    return {
        "benchmark": results.benchmark,
        "seeds": results.seeds,
        "groups": [_group(results, group, shown[group], verdict) for group in groups],
        "places": [_place(results, place) for place in places],
        "planes": _planes(places),
        "values": [list(row) for row in zip(*(_values(results, groups, place) for place in places), strict=True)]
        or [[] for _ in groups],
        "grids": [_grid(grid, places) for grid in grids if any(column.place for column in grid.columns)],
        "histories": _histories(results, groups),
        "losses": [_by_seed(results.distributions.get(group, {})) for group in groups],
        "stages": [_by_seed(_stages(results, group)) for group in groups],
        "answers": answer_texts(results, groups),
        "paper_notes": list(paper_notes),
        "static": list(grids),
        "live": live,
    }


def _group(results: Results, group: Group, look: Appearance, verdict: Headline) -> dict[str, Any]:
    return {
        "label": results.label(group),
        "reference": group.is_reference,
        "extra": results.is_extra(group),
        "winner": group == verdict.winner,
        "named": group in verdict.named,
        "seeds": seeds_text(results, group),
        "failed": bool(results.failures_of(group)) and group not in results.values,
        "colour": "" if group.is_reference else look.colour,
        "hollow": look.hollow,
        "marker": PAGE_MARKERS[look.marker],
        "turned": look.marker == "v",
        **_standing(group, verdict),
    }


def _standing(group: Group, verdict: Headline) -> dict[str, Any]:
    """Return the verdict on a method, for the legend. References and variants have none."""
    found = next((one for one in verdict.standings if one.group == group), None)
    if found is None:
        return {"verdict": "", "numbers": "", "rank": 99}
    return {"verdict": found.words, "numbers": found.numbers, "rank": found.rank}


def _planes(places: Sequence[Place]) -> list[dict[str, str]]:
    """Return what the trade-off plane can show: the split and the metric, if forget and kept data have it."""
    there = {(place.split, place.metric, place.subset) for place in places}
    return [
        {"split": split, "metric": metric, "title": title(metric), "words": _words(split, metric)}
        for split, metric in PLANES
        if (split, metric, "forget") in there and {(split, metric, name) for name in RETAINED} & there
    ]


def _words(split: str, metric: str) -> str:
    return title(metric) if split == "answers" else f"{split} {title(metric)}"


def _place(results: Results, place: Place) -> dict[str, Any]:
    better = results.direction(place)
    low, high = axis_of(place.metric, unit(place.metric))
    return {
        **place._asdict(),
        "meaning": meaning(place.metric),
        "low": low,
        "high": high,
        "title": title(place.metric),
        "unit": unit(place.metric),
        "better": better,
        "arrow": ARROWS[better],
    }


def _values(results: Results, groups: Sequence[Group], place: Place) -> list[dict[str, Any] | None]:
    """Return what each group measured at a place, as mean and by seed: value, deviation or interval, text, marks."""
    of_means = group_marks(results, place)
    of_seeds = {seed: group_marks(results, place, seed) for seed in results.seeds}
    columns: list[dict[str, Any] | None] = []
    for group in groups:
        found, spread = results.values.get(group, {}).get(place), results.spread(group, place)
        if not found or spread is None:
            columns.append(None)
            continue
        seeds = {
            str(seed): [*value, number(value.value, place.metric), of_seeds[seed].get(group, ())]
            for seed, value in sorted(found.items())
        }
        mean = [spread.mean, spread.deviation, spread.text(place.metric), of_means.get(group, ())]
        columns.append({"mean": mean, "seeds": seeds})
    return columns


def _grid(grid: Grid, places: Sequence[Place]) -> dict[str, Any]:
    shown = [column for column in grid.columns if column.place]
    return {
        "name": grid.name,
        "title": grid.title,
        "columns": [
            {"place": places.index(column.place), "heading": column.heading, "section": column.section}
            for column in shown
            if column.place
        ],
    }


def _histories(results: Results, groups: Sequence[Group]) -> list[dict[str, Any]]:
    series = sum(
        len({name for row in rows for name in row}) - 2
        for found in results.histories.values()
        for rows in found.values()
    )
    limit = max(20, min(POINTS, ALL_POINTS // max(1, series)))
    return [
        {str(seed): _history(rows, limit) for seed, rows in results.histories.get(group, {}).items()}
        for group in groups
    ]


def _history(rows: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return the series of a run as evenly thinned pairs of step and value, with the first and the last."""
    names = dict.fromkeys(name for row in rows for name in row if name not in ("phase", "step"))
    starts = [step for step in range(len(rows)) if step == 0 or rows[step]["phase"] != rows[step - 1]["phase"]]
    return {
        "phases": [[step, rows[step]["phase"]] for step in starts],
        "series": {
            name: thin([[step, row[name]] for step, row in enumerate(rows) if name in row], limit) for name in names
        },
    }


def thin(points: Sequence[Any], limit: int) -> list[Any]:
    """Return at most ``limit`` evenly spaced points, among them the first and the last.

    >>> thin(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(points) <= limit:
        return list(points)
    return [points[round(number * (len(points) - 1) / (limit - 1))] for number in range(limit)]


def _stages(results: Results, group: Group) -> dict[int, dict[str, Any]]:
    """Return histograms of the forget losses after each stage but the last, by the name of the stage."""
    return {
        seed: {name: entry["loss_histogram"] for name, entry in stages.items() if entry.get("loss_histogram")}
        for seed, stages in results.stages.get(group, {}).items()
    }


def _by_seed(found: Mapping[int, Any]) -> dict[str, Any]:
    return {str(seed): entry for seed, entry in sorted(found.items())}
