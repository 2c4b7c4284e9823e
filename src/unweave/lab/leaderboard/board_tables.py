"""The leaderboard as Markdown: a table for each benchmark and goal, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unweave.lab.leaderboard.standing_rows import BoardRow
from unweave.lab.report import MEASURES, MeanOverStudies, markdown_text

LEADING = {"erase": "erase_score", "retrain": "tow_split"}  # what sorts a table, the highest first
TITLES = {"erase": "erase", "retrain": "as if never trained"}


def as_markdown(rows: Iterable[BoardRow]) -> str:
    """Return a table for each benchmark and goal. Rows are sorted by score or ToW split, best first.

    Names come from submissions, so what Markdown, HTML or a terminal would not read as text is escaped.
    """
    tables: dict[tuple[str, str], list[BoardRow]] = {}
    for row in rows:
        tables.setdefault((row.board, row.goal), []).append(row)
    parts = []
    for (board, goal), own in sorted(tables.items(), key=lambda table: (table[0][0], table[0][1])):
        parts.append(f"## {markdown_text(board)}: {TITLES[goal]}\n\n{_table(goal, own)}")
    return "\n\n".join(parts)


def _table(goal: str, rows: Sequence[BoardRow]) -> str:
    columns = [measure for measure in MEASURES if any(measure.name in row.values for row in rows)]
    shown = [column.heading.replace("sample gradients", "1,000 sample gradients") for column in columns]
    heads = ["method", *shown, "seconds", "runs", "protocol"]
    lines = [f"| {' | '.join(heads)} |", f"| :--- |{' ---: |' * (len(heads) - 1)}"]
    for row in sorted(rows, key=lambda row: _place(row, LEADING[goal])):
        cells = [
            _cell(row.values[column.name], column.metric) if column.name in row.values else "–" for column in columns
        ]
        runs = f"{max(runs for *_, runs in row.values.values())}{f' ({row.failed} failed)' if row.failed else ''}"
        seconds = "–" if row.seconds is None else f"{row.seconds:,.1f}"
        lines.append(f"| {' | '.join([markdown_text(row.name), *cells, seconds, runs, markdown_text(row.protocol)])} |")
    return "\n".join(lines)


def _cell(value: Sequence[float | None], metric: str) -> str:
    """Return a mean with its interval; counts of samples in thousands, so that the table fits its page."""
    mean, reach = value[0] or 0.0, value[1]
    if metric == "sample_gradients":
        mean, reach = mean / 1000, None if reach is None else reach / 1000
    return MeanOverStudies(mean, reach).text(metric)


def _place(row: BoardRow, name: str) -> tuple[bool, float, str]:
    return name not in row.values, -row.values[name][0] if name in row.values else 0.0, row.name
