"""What the figures of a report share: style, small panels, and line colours."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from unweave.lab.report.looks import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 24  # small panels that are readable on one sheet; the page shows every method
LINES = {"forget": "#d55e00", "adjacent": "#0072b2", "remote": "#009e73"}


def style() -> dict[str, Any]:
    """Return matplotlib's settings for every figure."""
    return {
        "svg.hashsalt": "unweave",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.edgecolor": "#999999",
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "axes.axisbelow": True,
        "xtick.color": INK,
        "ytick.color": INK,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    }


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def picture(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the content of a ``.png`` or ``.svg`` file, which is the same for the same figure."""
    content = io.BytesIO()
    # Dates and random ids would make files of the same study differ.
    metadata = {"Date": None} if suffix == ".svg" else None
    figure.savefig(content, format=suffix.removeprefix("."), dpi=150, metadata=metadata)
    return content.getvalue()


def cumulative(counts: Sequence[float]) -> list[float]:
    """Return the percentage of samples below each edge of a histogram.

    >>> cumulative([1, 3])
    [0.0, 25.0, 100.0]
    """
    return [100 * part / (sum(counts) or 1) for part in accumulate(counts, initial=0)]


def panels(count: int, *, share: bool) -> tuple[Figure, list[Axes]]:
    """Return a figure of small panels, four in a row. At most ``PANELS`` are drawn."""
    count = min(count, PANELS)
    columns = min(4, count)
    rows = math.ceil(count / columns)
    figure = new_figure(2.5 * columns + 0.4, 1.75 * rows + 0.5)
    axes = list(figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def note(text: str, count: int) -> str:
    """Return a caption that says so if panels are left out."""
    return text if count <= PANELS else f"{text}; the first {PANELS} of {count} groups, the page shows all"
