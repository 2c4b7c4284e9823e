"""Tables of tries: a line for each task, and how the whole compares with the targets of the protocol."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
FORGOTTEN = 0.01
ABOVE_RETRAINED = 0.05
MILLION = 1_000_000
KEPT = ("adjacent", "remote")
HEADER = (
    f"{'task':<26}{'n':>2}  {'train forget':>12}  {'test forget':>18}  {'adjacent test':>15}  {'remote test':>15}"
    f"{'share':>8}{'cpu s':>8}"
)


def label_of(row: Row) -> str:
    """Return what was tried, in words."""
    settings = " ".join(f"{name}={value}" for name, value in sorted(row["settings"].items()))
    return " ".join(filter(None, [row.get("tag"), row["method"] or "default", settings]))


def newest(rows: Iterable[Row]) -> list[Row]:
    """Return the last try of each cell with the same method, settings and tag."""
    found: dict[str, Row] = {}
    for row in rows:
        found[json.dumps([label_of(row), row["task"], row["seed"]])] = row
    return list(found.values())


def line_of(rows: Sequence[Row]) -> str:
    """Return a line for one task, means over its seeds; the number is that of runs that came to an end."""
    done = [row for row in rows if not row["error"]]
    name = f"{rows[0]['task']:<26}{len(done):>2}  "
    if not done:
        return name + ", ".join(sorted({row["error"] for row in rows}))
    retrained = _mean(row["retrained"] and row["retrained"]["test forget"] for row in done)
    target = "" if retrained is None else f" (re {_percent(retrained)})"
    adjacent, remote = (
        " → ".join(_percent(_mean(row[when][f"test {what}"] for row in done)) for when in ("before", "after"))
        for what in KEPT
    )
    failed = f"  {len(rows) - len(done)} × {rows[-1]['error'] or 'failed'}" if len(done) < len(rows) else ""
    return (
        f"{name}{_percent(_mean(row['after']['train forget'] for row in done)):>12}  "
        f"{_percent(_mean(row['after']['test forget'] for row in done)) + target:>18}  {adjacent:>15}  {remote:>15}"
        f"{_mean(row['share'] for row in done):>8.2f}{_mean(row['cpu_seconds'] for row in done):>8.1f}{failed}"
    )


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how the cells stand against the targets that need no oracle."""
    done = [row for row in rows if not row["error"]]
    over = [row for row in done if exceeds_retrained(row)]
    lost = {
        what: [100 * (row["before"][f"test {what}"] - row["after"][f"test {what}"]) for row in done] for what in KEPT
    }
    found: dict[str, Any] = {
        "cells": len(rows),
        "errors": len(rows) - len(done),
        "not forgotten": [cell_of(row) for row in done if row["after"]["train forget"] > FORGOTTEN],
        "test forget above a retrained model's + 5": [cell_of(row) for row in over],
        "with a warning": sum(bool(row["warnings"]) for row in done),
    }
    for what, values in lost.items():
        if values:
            found[f"points of {what} test accuracy lost"] = _spread(values)
    if done:
        found["sample gradients, training = 1"] = _spread([row["share"] for row in done])
        large = [row["share"] for row in done if row["training"] >= MILLION]
        found["largest share where training took a million"] = max(large, default=None)
    return found


def exceeds_retrained(row: Row) -> bool:
    """Return whether a class, label or group is recognised in test data by more than a retrained model's share + 5."""
    of = row["retrained"]
    if of is None or of["test forget"] is None:
        return False
    return bool(row["after"]["test forget"] > of["test forget"] + ABOVE_RETRAINED)


def cell_of(row: Row) -> str:
    """Return the name of a cell."""
    return f"{row['task']}/{row['seed']}"


def table(rows: Iterable[Row]) -> str:
    """Return a table for each method and settings that was tried."""
    by_label: dict[str, list[Row]] = {}
    for row in newest(rows):
        by_label.setdefault(label_of(row), []).append(row)
    return "\n\n".join(_table(label, some) for label, some in by_label.items())


def _table(label: str, rows: Sequence[Row]) -> str:
    names = sorted(
        {row["task"] for row in rows}, key=lambda name: ([r["request"] for r in rows if r["task"] == name], name)
    )
    lines = [line_of([row for row in rows if row["task"] == name]) for name in names]
    sums = [f"  {what}: {value}" for what, value in totals(rows).items()]
    return "\n".join([f"== {label}", HEADER, *lines, *sums])


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _spread(values: Sequence[float]) -> str:
    return f"median {statistics.median(values):.2f}, worst {max(values):.2f}"
