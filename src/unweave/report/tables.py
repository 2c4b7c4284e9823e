"""Tables of accuracies in the paper's layout: train and test, three subsets each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from unweave.report.grids import Grid

COLUMNS = tuple((part, subset) for part in ("train", "test") for subset in ("forget", "adjacent", "remote"))


def percent(values: Sequence[float]) -> str:
    """Return mean ± standard deviation of fractions, as percentages for a person.

    >>> percent([0.5, 0.6])
    '55.0±7.1'
    """
    mean = f"{100 * statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean}±{100 * statistics.stdev(values):.1f}"


def accuracy_table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table with one row per method from the scores of its seeds. It fits 80 columns."""
    seeds = max(len(scores) for scores in rows.values())
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=f"accuracy in %{f', mean±std of {seeds} seeds' if seeds > 1 else ''}; ↓ lower is better, ↑ higher",
        caption_justify="left",
    )
    table.add_column("", overflow="fold")
    for part, subset in COLUMNS:
        table.add_column(f"{part}\n{subset}{'↓' if subset == 'forget' else '↑'}", justify="right", no_wrap=True)
    for name, scores in rows.items():
        cells = [percent([score[part][subset]["accuracy"] for score in scores]) for part, subset in COLUMNS]
        table.add_row(name, *cells)
    return table


def grid_table(grid: Grid) -> Table:
    """Return a table of a report for the terminal, as narrow as can be."""
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
