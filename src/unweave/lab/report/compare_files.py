"""The files of a comparison: its tables, and the planes under both goals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.report.compare import Comparison, estimate_runs, grids, runs_of
from unweave.lab.report.compare_measures import ERASE, PLANES, RETRAIN, Plane
from unweave.lab.report.drawing import new_figure, style
from unweave.lab.report.formats import comma_separated, latex, markdown
from unweave.lab.report.looks import GREY, looks
from unweave.lab.report.results import Group, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {ERASE: "erase: up and left is better", RETRAIN: "as if never trained: the cross is best"}


def write_comparison(found: Comparison, studies: Sequence[Results], folder: Path) -> list[Path]:
    """Write the tables (Markdown, LaTeX, CSV) and the planes (PNG, SVG) into a folder, which may hold earlier ones."""
    require_package("matplotlib", "The figures of a comparison")
    import matplotlib as mpl

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Choose another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for grid in grids(found):
        for suffix, write in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
            files.append(folder / f"{grid.name}.{suffix}")
            files[-1].write_text(write(grid), encoding="utf-8")
    with mpl.rc_context(style()):  # type: ignore[arg-type]  # its keys are a literal of every setting
        if (figure := planes(found, studies)) is not None:
            for suffix in ("png", "svg"):
                files.append(folder / f"compare-planes.{suffix}")
                figure.savefig(files[-1], dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return files


def planes(found: Comparison, studies: Sequence[Results]) -> Figure | None:
    """Draw every method's forget and adjacent accuracy, against the original and against retrained models.

    None where the studies have neither.
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
        # An interval of one unsteady method would squeeze all others together: it may leave the picture.
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
    """Spread points of accuracy: where all good methods are, one matters; where others fail, ten hardly do."""
    from matplotlib.ticker import ScalarFormatter

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
    """Return mean and reach of the interval along both axes, in percent."""
    found = [estimate_runs(studies, runs_of(studies, group, value_of)) for _, value_of in plane]
    return [(100 * one.mean, 100 * (one.reach or 0)) for one in found if one] if all(found) else None
