"""Tables for the terminal: accuracies in the paper's layout, and the tables of a report."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from unweave.lab.report.grids import Grid
from unweave.lab.report.measures import SPLITS, SUBSETS

COLUMNS = tuple((part, subset) for part in SPLITS for subset in SUBSETS)
NAMES = {"prob.": "probability", "ROUGE": "rouge"}
ANSWER_COLUMNS = tuple((metric, subset) for metric in NAMES for subset in SUBSETS)

WIDTH = 80  # of a terminal


def percent(values: Sequence[float | None]) -> str:
    """Return mean ± standard deviation of fractions as percentages; a dash for an empty subset.

    >>> percent([0.5, 0.6]), percent([None])
    ('55.0±7.1', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = f"{100 * statistics.mean(known):.1f}"
    return mean if len(known) == 1 else f"{mean}±{100 * statistics.stdev(known):.1f}"


def accuracy_table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table with one row per method from the scores of its seeds. It fits into 80 columns."""
    return _table_of_shares(rows, COLUMNS, _accuracy, "accuracy")


def answer_table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return the same of the scores of language models' answers: their probability, and ROUGE-L of what is written."""
    return _table_of_shares(rows, ANSWER_COLUMNS, _about_answers, "answers")


def _table_of_shares(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    columns: Sequence[tuple[str, str]],
    read: Callable[[Mapping[str, Any], str, str], float | None],
    words: str,
) -> Table:
    low, high = (pick(len(scores) for scores in rows.values()) for pick in (min, max))
    seeds = f"{low} to {high}" if low < high else str(high)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=f"{words} in %{f', mean±std of {seeds} seeds' if high > 1 else ''}; ↓ lower is better, ↑ higher",
        caption_justify="left",
    )
    cells = {
        name: [percent([read(score, part, subset) for score in scores]) for part, subset in columns]
        for name, scores in rows.items()
    }
    headings = [f"{part}\n{subset}{'↓' if subset == 'forget' else '↑'}" for part, subset in columns]
    shown = zip(headings, *cells.values(), strict=True)
    rest = sum(2 + max(len(line) for text in column for line in text.split("\n")) for column in shown)
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, texts in cells.items():
        table.add_row(folded(name, max(10, WIDTH - rest)), *texts)
    return table


def _about_answers(scores: Mapping[str, Any], metric: str, subset: str) -> float | None:
    for row in scores.get("metrics", []):
        if (row["metric"], row["subset"]) == (NAMES[metric], subset):
            value: float | None = row.get("value")
            return value
    return None


def _accuracy(scores: Mapping[str, Any], part: str, subset: str) -> float | None:
    found: float | None = scores.get(part, {}).get(subset, {}).get("accuracy")
    return found


def folded(name: str, width: int) -> str:
    r"""Break a name into lines at spaces. A word that is longer than a line is broken after a = or _.

    >>> folded("two-stage constrain_adjacent=true", 20)
    'two-stage\nconstrain_adjacent=\ntrue'
    """
    lines = [""]
    for word in name.split():
        if len(word) <= width:
            longer = f"{lines[-1]} {word}".strip()
            lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, word]
            continue
        lines.append("")
        for piece in re.findall(r"[^=_]+[=_]?|[=_]", word):
            lines = [*lines[:-1], lines[-1] + piece] if len(lines[-1] + piece) <= width else [*lines, piece]
        lines.append("")  # the next word starts a new line
    return "\n".join(filter(None, lines))


def grid_table(grid: Grid) -> Table:
    """Return a table of a report for the terminal, as narrow as possible."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        title=grid.title,
        title_justify="left",
        caption=" ".join(grid.notes),
        caption_justify="left",
    )
    table.add_column("", overflow="fold", min_width=10)
    for column in grid.columns:
        heading = " ".join(filter(None, (column.section, column.heading)))
        table.add_column(heading.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for row in grid.rows:
        table.add_row(row.name, *(entry.text.replace(" ", "\n", 1) for entry in row.entries))
    return table
