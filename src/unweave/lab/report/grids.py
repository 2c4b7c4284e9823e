"""The tables of a report, whatever the file format: rows of methods, columns of places."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unweave.lab.report.marks import marks
from unweave.lab.report.measures import ARROWS, COSTS, SECONDS, SPLITS, SUBSETS, Place, Spread, title, unit
from unweave.lab.report.results import Group, Results

LEGEND = "Mean ± standard deviation over seeds; ↓ lower is better, ↑ higher, → nearest to retraining."
MARKED = "Bold: best in its column. Underlined: nearest to retraining."
ANSWERS = ("probability", "rouge", "exact_memorisation", "extraction_strength")
ABOUT_ANSWERS = (
    ("forget", "exact_memorisation_unshared"),
    ("forget", "truth_ratio"),
    ("forget", "forget_quality_log10"),
    ("forget", "ks_statistic"),
    ("forget", "mia_loss_auc"),
    ("forget", "mia_min_k_auc"),
    ("forget", "privacy_leak"),
    ("", "model_utility"),
)
ATTACKS = ("mia_svc_confidence", "mia_population_auc", "mia_rmia_auc", "mia_ulira_auc")


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the heading that it shares with its neighbours."""

    heading: str
    section: str = ""
    place: Place | None = None


@dataclass(frozen=True)
class Entry:
    """A cell of a table: its text and its marks."""

    text: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row: a name and its entries."""

    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Grid:
    """A table. ``records`` hold the same numbers for programs: fractions, one record per row."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def short_title(self) -> str:
        """The title without the name of the study."""
        return self.title.split(" · ")[0]

    @property
    def sections(self) -> list[tuple[str, int]]:
        """The headings over several columns, each with its width; empty if no column has one."""
        if not any(column.section for column in self.columns):
            return []
        spans = itertools.groupby(self.columns, key=lambda column: column.section)
        return [(section, len(list(members))) for section, members in spans]


def study_grids(results: Results) -> list[Grid]:
    """Return every table that the study has values for: first in the paper's layout, failures last."""
    there = set(results.places())
    cells = [(split, subset) for split in SPLITS for subset in SUBSETS]
    plans: list[tuple[str, str, list[Place]]] = [
        ("answers", "Answers", [Place("answers", subset, metric) for metric in ANSWERS for subset in SUBSETS]),
        ("forgotten-answers", "Forgotten answers", [Place("answers", *place) for place in ABOUT_ANSWERS]),
        ("accuracy", "Accuracy", [Place(*cell, "accuracy") for cell in cells]),
        ("loss", "Mean loss", [Place(*cell, "loss") for cell in cells]),
        ("membership", "Membership attacks", attack_places(results)),
        ("other", "Other measures", other_places(results)),
        ("cost", "Cost", [Place("", "", cost) for cost in COSTS]),
    ]
    kept = [(name, words, [place for place in places if place in there]) for name, words, places in plans]
    grids = [grid(results, name, words, places) for name, words, places in kept if places]
    return grids + ([failure_grid(results)] if results.failures else [])


def attack_places(results: Results) -> list[Place]:
    """Return the attacks to show: those in ``ATTACKS`` or, without any, every AUC. The forget data come first."""
    there = [place for place in results.places() if place.metric.startswith("mia_") and place.split == "train"]
    named = [place for place in there if place.metric in ATTACKS]
    shown = named or [place for place in there if place.metric.endswith("_auc")] or there
    return sorted(shown, key=lambda place: SUBSETS.index(place.subset) if place.subset in SUBSETS else len(SUBSETS))


def other_places(results: Results) -> list[Place]:
    """Return the places of other metrics, of the whole model or of the forget data."""
    known = ("accuracy", "loss", "samples", *COSTS)
    return [
        place
        for place in results.places()
        if place.metric not in known
        and not place.metric.startswith("mia_")
        and (place.split, place.subset) in (("", ""), ("train", "forget"), ("test", "forget"))
    ]


def grid(
    results: Results, name: str, words: str, places: Sequence[Place], *, rows: Mapping[Group, str] | None = None
) -> Grid:
    """Return a table of these places with a row for each group, or for each group in ``rows`` under its name.

    A failed group has a row too. The best value of a column is the best of the rows shown.
    """
    names = rows or {group: results.label(group) for group in results.groups}
    marked = {place: group_marks(results, place, among=rows) for place in places}
    shown = [Row(label, _entries(results, group, marked)) for group, label in names.items()]
    records = [_record(results, group, places) for group in names]
    plain = words in ("Accuracy", "Mean loss")
    columns = [Column("seeds"), *(_column(results, place, short=plain) for place in places)]
    sharing = results.sharing if SECONDS in places else ""
    notes = [*filter(None, (results.caution, LEGEND, MARKED, sharing)), *failure_notes(results, among=names)]
    units = {unit(place.metric) for place in places} - {"count", ""}
    heading = f"{words} in {units.pop()}" if plain and len(units) == 1 else words
    return Grid(name, f"{heading} · {results.benchmark}", tuple(columns), tuple(shown), records, tuple(notes))


def _entries(
    results: Results, group: Group, marked: Mapping[Place, Mapping[Group, tuple[str, ...]]]
) -> tuple[Entry, ...]:
    """Return a row as a person reads it, with its marks."""
    entries = [Entry(seeds_text(results, group))]
    for place, of in marked.items():
        spread = results.spread(group, place)
        if spread:
            text = spread.text(place.metric) + fewer(spread, results, group)
            entries.append(Entry(text, of.get(group, ())))
        else:
            entries.append(_nothing(results, group))
    return tuple(entries)


def _record(results: Results, group: Group, places: Sequence[Place]) -> dict[str, Any]:
    """Return a row as a record for programs."""
    record: dict[str, Any] = {**group._asdict(), **_counts(results, group)}
    for place in places:
        spread, stem = results.spread(group, place), "_".join(part for part in place if part)
        record[f"{stem}_mean"] = spread.mean if spread else None
        record[f"{stem}_std"] = spread.deviation if spread else None
    return record | {"error": "; ".join(failure.error for failure in results.failures_of(group))}


def group_marks(
    results: Results, place: Place, seed: int | None = None, *, among: Container[Group] | None = None
) -> dict[Group, tuple[str, ...]]:
    """Return the marks of every method at a place, for the means or for one seed. References get no marks."""

    def value(group: Group | None) -> float | None:
        if group is None or seed is None:
            return results.mean(group, place)
        found = results.values.get(group, {}).get(place, {}).get(seed)
        return found.value if found else None

    there = [group for group in results.values if (not results.is_extra(group) if among is None else group in among)]
    racing = {group: value(group) for group in there if not group.is_reference}
    found = {group: one for group, one in racing.items() if one is not None}
    if among is not None and len(racing) < 2:
        return {}
    retrained = None if place.metric in COSTS else value(results.reference("retrain"))
    return marks(found, better=results.direction(place), metric=place.metric, retrained=retrained)


def fewer(spread: Spread, results: Results, group: Group) -> str:
    """Say how many seeds a value is over, if the group has more."""
    seeds = spread.seeds if spread.seeds < len(results.seeds_of(group)) else 0
    return f" ({seeds} seed{'' if seeds == 1 else 's'})" if seeds else ""


def seeds_text(results: Results, group: Group) -> str:
    """Return the number of a group's seeds, and how many failed."""
    failed = len(results.failures_of(group))
    return f"{len(results.seeds_of(group))}" + (f" ({failed} failed)" if failed else "")


def failure_notes(results: Results, *, among: Container[Group] | None = None) -> list[str]:
    """Return one sentence per failed cell."""
    failed = [cell for cell in results.failures if among is None or cell.group in among]
    return [f"Failed: {results.label(cell.group)} seed {cell.seed}: {cell.error}" for cell in failed]


def failure_grid(results: Results) -> Grid:
    """Return the table of the failed cells with their errors."""
    rows = [Row(results.label(cell.group), (Entry(str(cell.seed)), Entry(cell.error))) for cell in results.failures]
    records = [{**cell.group._asdict(), "seed": cell.seed, "error": cell.error} for cell in results.failures]
    return Grid(
        "failed", f"Failed cells · {results.benchmark}", (Column("seed"), Column("error")), tuple(rows), records
    )


def _column(results: Results, place: Place, *, short: bool) -> Column:
    arrow = ARROWS[results.direction(place)]
    if short:
        return Column(f"{place.subset} {arrow}".strip(), place.split, place)
    kind = unit(place.metric)
    measured = f" ({kind})" if kind not in ("", "count") else ""
    return Column(f"{title(place.metric)}{measured} {arrow}".strip(), place.words, place)


def _counts(results: Results, group: Group) -> dict[str, int]:
    return {"seeds": len(results.seeds_of(group)), "failed": len(results.failures_of(group))}


def _nothing(results: Results, group: Group) -> Entry:
    return Entry("failed" if results.failures_of(group) and not results.values.get(group) else "–")
