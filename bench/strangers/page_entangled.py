"""The tables about strong entanglement, from the rows of `bench.entangled`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
OURS, TODAY = "adaptive", "unweave"
CELLS = ("train forget", "train adjacent", "train remote", "test forget", "test adjacent", "test remote")
FORGOTTEN, REMOTE, REMOTE_LOST = 0.005, 0.98, 0.005


def table(rows: Sequence[Row]) -> str:
    """Return a row for each class, seed and method: the six accuracies before and after, and the cost."""
    lines = [
        "| benchmark | forget | seed | method | train f / a / r | test f / a / r | cost, training = 1 | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shown = set()
    for row in sorted(rows, key=_place):
        head = [_benchmark(row), row["forget"] or "", str(row["seed"])]
        if tuple(head) not in shown:
            shown.add(tuple(head))
            lines.append(_line([*head, "original", *_six(row["before"]), "1", f"{row['training_seconds']:.0f}"]))
        told = [row["error"], ""] if row["error"] else _six(row["after"])
        share = "" if row["error"] else f"{row['share']:.2f}"
        lines.append(_line([*head, row["method"], *told, share, f"{row['seconds']:.0f}"]))
    return "\n".join(lines)


def facts(rows: Sequence[Row]) -> str:
    """Return how `adaptive` stands against the targets, beside `unweave` on the same originals."""
    done = [row for row in rows if not row["error"]]
    ours = [row for row in done if row["method"] == OURS]
    pairs = [(row, other) for row in ours if (other := _other(row, done))]
    halved = [row for row, other in pairs if _lost(row, "adjacent") <= max(_lost(other, "adjacent"), 0) / 2]
    no_higher = [row for row, other in pairs if row["after"]["test forget"] <= other["after"]["test forget"]]
    tests = {
        "At most 0.5% of the forget training samples recognised": [_is_forgotten(row) for row in ours],
        "At least 98% of the remote training samples": [row["after"]["train remote"] >= REMOTE for row in ours],
        "Remote test accuracy at most half a point below the original's": [
            _lost(row, "remote") <= REMOTE_LOST for row in ours
        ],
    }
    lines = [f"- {what}: {sum(found)} of {len(found)} cells." for what, found in tests.items()]
    lines += [
        f"- Unseen forget data recognised no more often than by `{TODAY}`: {len(no_higher)} of {len(pairs)} cells.",
        f"- Adjacent test accuracy loses at most half of what `{TODAY}` loses: {len(halved)} of {len(pairs)} cells.",
        f"- Runs of `{OURS}` that failed: {sum(bool(r['error']) for r in rows if r['method'] == OURS)}.",
    ]
    return "\n".join(lines)


def _other(row: Row, rows: Sequence[Row]) -> Row | None:
    """Return the run of `unweave` on the same original."""
    return next((other for other in rows if other["method"] == TODAY and _cell(other) == _cell(row)), None)


def _is_forgotten(row: Row) -> bool:
    return bool(row["after"]["train forget"] <= FORGOTTEN)


def _lost(row: Row, what: str) -> float:
    return float(row["before"][f"test {what}"] - row["after"][f"test {what}"])


def _cell(row: Row) -> tuple[Any, ...]:
    return row["benchmark"], row["size"], row["forget"], row["seed"]


def _place(row: Row) -> tuple[Any, ...]:
    return row["benchmark"], -(row["size"] or 0), row["forget"] or "", row["seed"], row["method"]


def _benchmark(row: Row) -> str:
    return row["benchmark"] + (f", {row['size']} px" if row["size"] else "")


def _six(values: Mapping[str, float]) -> list[str]:
    found = [f"{100 * values[name]:.1f}" for name in CELLS]
    return [" / ".join(found[:3]), " / ".join(found[3:])]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
