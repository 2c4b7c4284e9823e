"""Read a study's folder into plain values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.parquet_files import read_parquet
from unweave.lab.report.measures import COSTS, Place
from unweave.lab.report.results import Distribution, Failure, Group, Results, Value
from unweave.lab.study import Store, read_history
from unweave.storage import COUNT, TEXT, require_form

NEEDED = ("variant", "method", "profile", "seed", "split", "subset", "metric", "value")
ROW = {"method": TEXT, "seed": COUNT, "metric": TEXT}
ROW |= dict.fromkeys(("variant?", "profile?", "split?", "subset?"), TEXT)
VERSIONS = ("unweave", "torch")  # a report names the versions of these


def read_results(folder: Path) -> Results:
    """Read a study's folder. Raises `UsageError` if it holds no study that this version can read."""
    store = Store.open(folder)
    results = Results(folder=folder, about=store.about())
    try:
        runs = store.provenance()
        results.at_once = max([1, *map(_workers, runs)])
        # Numbers that were published without their cells name data, model and versions only here.
        results.notes |= results.about.get("notes", {})
        for run in runs:
            results.versions |= {name: run["versions"][name] for name in VERSIONS if name in run.get("versions", {})}
        rows = _table(store)
        for row in rows:
            _take(results, row)
        _take_cells(store, results)
        _take_failures(store, results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The study in {folder} cannot be read: {error}. Run `unweave study` again.") from error
    if not results.values and not results.failures:
        raise UsageError(f"{folder} holds a study without a finished cell. Run `unweave study` to its end first.")
    return results


def _workers(run: dict[str, Any]) -> int:
    """Return how many processes a command started; older entries say so only in the command itself."""
    said = re.search(r"--workers[ =](\d+)", str(run.get("command", "")))
    return int(run.get("workers") or (said[1] if said else 1))


def _table(store: Store) -> list[dict[str, Any]]:
    """Return the rows of the finished cells or, for published numbers without cells, those of the table.

    Cells are newer than the table: they may have been finished, evaluated again or removed after it was written.
    """
    table = _parquet(store.table) if store.table.exists() else []
    return store.rows() or table


def _parquet(path: Path) -> list[dict[str, Any]]:
    table = read_parquet(path, "Run `unweave study` again to rewrite it.")
    missing = [column for column in NEEDED if column not in table.column_names]
    if missing:
        raise UsageError(f"{path} lacks the columns {', '.join(missing)}. Run `unweave study` again to rewrite it.")
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows):
        require_form(row, ROW, f"{path}, row {number}")
        for name in ("value", "low", "high"):  # which may be infinite or NaN
            if not isinstance(row.get(name), int | float | None):
                raise UsageError(f"{path}, row {number}: the {name} is not a number. Run `unweave study` again.")
    return rows


def _cell(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return (row["method"], row["profile"] or "", row["variant"] or "", int(row["seed"]))


def _take(results: Results, row: dict[str, Any]) -> None:
    if row["value"] is None or row["value"] != row["value"]:  # not measured: pandas writes NaN
        return
    *names, seed = _cell(row)
    place = Place(row["split"] or "", row["subset"] or "", row["metric"])
    value = Value(float(row["value"]), row.get("low"), row.get("high"))
    results.values.setdefault(Group(*names), {}).setdefault(place, {})[seed] = value


def _take_cells(store: Store, results: Results) -> None:
    """Read what is not in the table: histories, loss distributions, directions, versions."""
    for cell, labels in store.finished().items():
        folder = store.cells / cell
        config, scores = store.configuration(cell), store.scores_of(cell)
        *names, seed = _cell(labels)
        group = Group(*names)
        results.versions |= {name: config[name] for name in VERSIONS if name in config}
        results.settings[group] = config.get("settings", {})
        results.notes |= config.get("notes", {})
        if said := store.said(cell):
            results.said.setdefault(group, {})[seed] = said
        if stages := scores.get("stages"):
            results.stages.setdefault(group, {})[seed] = stages
        for row in [*scores.get("metrics", []), *store.answer_scores_of(cell).get("metrics", [])]:
            results.directions[Place(row["split"], row["subset"], row["metric"])] = row["better"]
        if history := read_history(folder / "history.jsonl"):
            results.histories.setdefault(group, {})[seed] = history
        if distribution := _distribution(scores):
            results.distributions.setdefault(group, {})[seed] = distribution
    for cost in COSTS:
        results.directions.setdefault(Place("", "", cost), "lower")


def _distribution(scores: dict[str, Any]) -> Distribution:
    found: Distribution = {}
    for split in ("train", "test"):
        for subset, metrics in scores.get(split, {}).items():
            histogram = metrics.get("loss_histogram")
            if histogram and sum(histogram["counts"]):
                found.setdefault(split, {})[subset] = {key: histogram[key] for key in ("edges", "counts")}
    return found


def _take_failures(store: Store, results: Results) -> None:
    for row in store.failures():
        *names, seed = _cell(row)
        group = Group(*names)
        # The note of a cell that never started may lack the profile. Then it is that of the other seeds.
        same = [other for other in results.values if (other.method, other.variant) == (group.method, group.variant)]
        if not group.profile and len(same) == 1:
            group = same[0]
        if seed in results.seeds_of(group):  # it was run again elsewhere and succeeded
            continue
        results.failures.append(Failure(group, seed, str(row["error"])))
