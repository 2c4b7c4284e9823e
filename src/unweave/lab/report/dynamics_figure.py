"""The figure of learning dynamics: values logged during unlearning, one panel per method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unweave.lab.report.drawing import LINES, note, panels
from unweave.lab.report.looks import GREY, INK
from unweave.lab.report.results import Results

SPARE = (GREY, "#cc79a7", "#e69f00")
Rows = Sequence[Mapping[str, Any]]  # a run's log, one entry per step
Series = dict[str, list[tuple[int, float]]]  # pairs of step and value, by the name of the value


def dynamics(results: Results) -> Figure | None:
    """Draw the values logged during unlearning with the first seed: accuracies if there are any, else losses."""
    first = {group: next(iter(found.values())) for group, found in results.histories.items()}
    word = _word(first.values())
    there = [group for group in results.groups if group in first and not results.is_extra(group)]
    shown = {group: series for group in there if (series := _series(first[group], word))}
    if not shown:
        return None
    figure, axes = panels(len(shown), share=False)
    for axis, (group, series) in zip(axes, shown.items(), strict=False):
        _lines(axis, series)
        _phases(axis, first[group])
        axis.set_title(results.label(group))
        if word == "loss":
            _scale(axis, max(value for pairs in series.values() for _, value in pairs))
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=6, frameon=False)
    figure.supxlabel(note("step; dotted: next phase; one seed", len(shown)), fontsize=9)
    figure.supylabel(word, fontsize=9)
    return figure


def _word(histories: Iterable[Rows]) -> str:
    names = {name for rows in histories for row in rows for name in row}
    return "accuracy" if any(name.endswith("accuracy") for name in names) else "loss"


def _series(rows: Rows, word: str) -> Series:
    """Return every logged value whose name ends in a word, as pairs of step and value."""
    names = dict.fromkeys(name for row in rows for name in row if name.endswith(word))
    return {name: [(step, row[name]) for step, row in enumerate(rows) if name in row] for name in names}


def _lines(axis: Axes, series: Series) -> None:
    spare = cycle(SPARE)
    for name, pairs in series.items():
        colour = next((shade for subset, shade in LINES.items() if subset in name), None) or next(spare)
        style = "--" if name.startswith("test") else "-"
        axis.plot(*zip(*pairs, strict=True), style, color=colour, linewidth=0.9, label=name.replace("_", " "))


def _phases(axis: Axes, rows: Rows) -> None:
    """Draw a dotted line where the next phase begins."""
    for step, (before, row) in enumerate(pairwise(rows), start=1):
        if row["phase"] != before["phase"]:
            axis.axvline(step, color=INK, linewidth=0.6, linestyle=":")


def _scale(axis: Axes, top: float) -> None:
    """Draw losses above 1 on a logarithmic axis."""
    if top > 1:
        axis.set_yscale("symlog", linthresh=1)
        axis.set_yticks([tick for tick in (0, 1, 10, 100, 1000) if tick <= 10 * top])
        axis.yaxis.set_major_formatter("{x:g}")
