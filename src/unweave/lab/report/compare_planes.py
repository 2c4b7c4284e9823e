"""The plots of a comparison: forget accuracy against kept accuracy, one plot for each goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from unweave.lab.report.compare import Comparison, estimate_runs, runs_of
from unweave.lab.report.compare_measures import ERASE, PLANES, RETRAIN, Plane
from unweave.lab.report.drawing import new_figure, picture, style
from unweave.lab.report.looks import GREY, looks
from unweave.lab.report.results import Group, Results
from unweave.storage import write_whole

TITLES = {ERASE: "erase: up and left is better", RETRAIN: "as if never trained: the cross is best"}


def draw_planes(found: Comparison, studies: Sequence[Results], folder: Path) -> list[Path]:
    """Draw the plots as PNG and SVG. Return the files; there are none if nothing can be drawn."""
    with mpl.rc_context(style()):  # type: ignore[arg-type]  # its keys are a literal of every setting
        figure = planes(found, studies)
        if figure is None:
            return []
        files = [folder / f"compare-planes.{suffix}" for suffix in ("png", "svg")]
        for file in files:
            write_whole(file, picture(figure, file.suffix))
    return files


def planes(found: Comparison, studies: Sequence[Results]) -> Figure | None:
    """Draw forget and kept accuracy of every method, relative to the original and to retrained models.

    Returns None if the studies have neither.
    """
    every = {goal: {group: _point(studies, group, plane) for group in found.names} for goal, plane in PLANES.items()}
    drawn = {goal: {group: point for group, point in points.items() if point} for goal, points in every.items()}
    drawn = {goal: points for goal, points in drawn.items() if points}
    if not drawn:
        return None
    figure = new_figure(4.6 * len(drawn) + 1.8, 4.4)
    axes = figure.subplots(1, len(drawn), squeeze=False)[0]
    shown = looks(list(found.names))
    for axis, (goal, points) in zip(axes, drawn.items(), strict=True):
        for group, ((x, across), (y, up)) in points.items():
            look = shown[group]
            axis.errorbar(
                x,
                y,
                xerr=across,
                yerr=up,
                fmt=look.marker,
                color=look.colour,
                markerfacecolor="white" if look.hollow else look.colour,
                elinewidth=0.8,
                label=found.names[group],
            )
        # The limits fit the points, not the intervals: one wide interval would squeeze all points together.
        axis.set_xlim(*_limits([x for (x, _), _ in points.values()]))
        _scale_heights(axis, [y for _, (y, _) in points.values()])
        if goal == RETRAIN:
            axis.plot([0], [0], "+", color=GREY, markersize=14)
        axis.set_title(TITLES[goal])
        (across_words, _), (up_words, _) = PLANES[goal]
        axis.set_xlabel(across_words)
        axis.set_ylabel(up_words)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    return figure


def _scale_heights(axis: Axes, values: Sequence[float]) -> None:
    """Scale the accuracy axis: near zero a single point matters, far below ten points hardly do."""
    low, high = min(values) - max(1.0, 0.3 * abs(min(values))), max(values) + max(1.0, 0.3 * abs(max(values)))
    axis.set_yscale("symlog", linthresh=5, linscale=1.5)
    axis.set_ylim(low, high)
    axis.set_yticks([tick for tick in (-100, -50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50) if low <= tick <= high])
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(ScalarFormatter())


def _limits(values: Sequence[float]) -> tuple[float, float]:
    margin = max(5.0, 0.1 * (max(values) - min(values)))
    return min(values) - margin, max(values) + margin


def _point(studies: Sequence[Results], group: Group, plane: Plane) -> list[tuple[float, float]] | None:
    """Return the mean and the half width of its interval on both axes, in percent."""
    found = [estimate_runs(studies, runs_of(studies, group, value_of)) for _, value_of in plane]
    return [(100 * one.mean, 100 * (one.reach or 0)) for one in found if one] if all(found) else None
