"""The figure of the demo: the losses of the forget samples at several moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unweave.lab.packages import require_package

REMEMBERED, FORGOTTEN, INK = "#d1495b", "#30638e", "#333333"


def loss_distributions(
    panels: Mapping[str, tuple[np.ndarray[Any, Any], float]], *, classes: int, files: list[Path]
) -> None:
    """Draw the losses of the forget samples at several moments, as in the paper's figure 1.

    ``panels`` maps a title to (losses, accuracy). Samples with a loss below log(classes) are drawn in red: only they
    can still be predicted right.
    """
    require_package("matplotlib", "A figure")
    import matplotlib as mpl  # slow to import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    top = max(float(losses.max()) for losses, _ in panels.values())
    edges = np.linspace(0, max(top, 1.0), 41)
    limit = math.log(classes)
    figure = Figure(figsize=(3.1 * len(panels), 2.7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    tallest = max(np.histogram(losses, edges)[0].max() / len(losses) for losses, _ in panels.values())
    for axis, (title, (losses, accuracy)) in zip(axes, panels.items(), strict=True):
        for part, colour in ((losses[losses < limit], REMEMBERED), (losses[losses >= limit], FORGOTTEN)):
            axis.hist(part, bins=edges, weights=np.full(len(part), 100 / len(losses)), color=colour)
        axis.set_title(title, fontsize=11, color=INK, loc="left")
        axis.text(
            0.97,
            0.93,
            f"{100 * accuracy:.1f}% still\npredicted right",
            transform=axis.transAxes,
            ha="right",
            va="top",
            fontsize=9,
            color=REMEMBERED if accuracy > 0.01 else INK,
        )
        axis.set_yscale("symlog", linthresh=1)
        axis.set_ylim(0, min(100.0, 150 * tallest))
        axis.set_yticks([1, 10, 100], ["1%", "10%", "100%"])
        axis.set_xlabel("loss of a forget sample", fontsize=9, color=INK)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
    axes[0].set_ylabel("share of forget samples", fontsize=9, color=INK)
    with mpl.rc_context({"svg.hashsalt": "unweave", "svg.fonttype": "none"}):
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
