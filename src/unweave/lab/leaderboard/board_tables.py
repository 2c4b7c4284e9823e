"""The leaderboard as Markdown: a table for each benchmark and goal, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unweave.lab.leaderboard.standing_rows import BoardRow
from unweave.lab.report import MEASURES, MeanOverStudies

LEADING = {"erase": "erase_score", "retrain": "tow_split"}  # what sorts a table, the highest first
TITLES = {"erase": "erase", "retrain": "as if never trained"}


def as_markdown(rows: Iterable[BoardRow]) -> str:
    """Return a table for each benchmark and goal. Rows are sorted by score or ToW split, best first."""
    tables: dict[tuple[str, str], list[BoardRow]] = {}
    for row in rows:
        tables.setdefault((row.board, row.goal), []).append(row)
    parts = []
    for (board, goal), own in sorted(tables.items(), key=lambda table: (table[0][0], table[0][1])):
        parts.append(f"## {board}: {TITLES[goal]}\n\n{_table(goal, own)}")
    return "\n\n".join(parts)


def _table(goal: str, rows: Sequence[BoardRow]) -> str:
    columns = [measure for measure in MEASURES if any(measure.name in row.values for row in rows)]
    heads = ["method", *(column.heading for column in columns), "seconds", "runs", "protocol"]
    lines = [f"| {' | '.join(heads)} |", f"| :--- |{' ---: |' * (len(heads) - 1)}"]
    for row in sorted(rows, key=lambda row: _place(row, LEADING[goal])):
        cells = [
            MeanOverStudies(*row.values[column.name][:2]).text(column.metric) if column.name in row.values else "–"
            for column in columns
        ]
        runs = f"{max(runs for *_, runs in row.values.values())}{f' ({row.failed} failed)' if row.failed else ''}"
        seconds = "–" if row.seconds is None else f"{row.seconds:,.1f}"
        lines.append(f"| {' | '.join([row.name, *cells, seconds, runs, row.protocol])} |")
    return "\n".join(lines)


def _place(row: BoardRow, name: str) -> tuple[bool, float, str]:
    return name not in row.values, -row.values[name][0] if name in row.values else 0.0, row.name
