"""Draw the files of `bench.scaling`: python -m bench.plot results/speed docs/images."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NAMES = {"stage2": "stage 2", "fine_tuning": "fine-tuning", "projection": "projection alone"}
STYLES = ("-", "--", ":")  # one for each machine
TITLES = (
    ("a step against parameters", "a step against forget samples", "projection against directions"),
    ("peak memory against parameters", "against forget samples", "against directions"),
)


def draw(results: list[dict[str, Any]]) -> Figure:
    """Plot time and memory against parameters, forget set and directions, with a line for each machine."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots(2, 3)
    for result, style in zip(results, STYLES, strict=False):
        device = result["provenance"]["hardware"]["device"]
        _draw_parameters(axes[:, 0], result["by_parameters"], device, style)
        for column, part, key in ((1, "by_forget_set", "forget"), (2, "by_directions", "directions")):
            _draw_line(axes[:, column], result[part], key, device, style)
    for row, titles in enumerate(TITLES):
        for column, title in enumerate(titles):
            _label(axes[row, column], title, unit=("seconds", "bytes")[row], logarithmic=column < 2)
    axes[0, 0].legend(fontsize=7)
    axes[0, 1].legend(fontsize=7)
    return figure


def _draw_parameters(axes: Any, rows: list[dict[str, Any]], device: str, style: str) -> None:
    """Draw a line for each kind of work: stage 2, fine-tuning, projection."""
    sizes = [row["parameters"] for row in rows]
    for number, (key, name) in enumerate(NAMES.items()):
        colour, label = f"C{number}", f"{name}, {device}"
        axes[0].plot(sizes, [row[key]["seconds"] for row in rows], f"o{style}", color=colour, label=label)
        if "peak_bytes" in rows[0][key]:
            axes[1].plot(sizes, [row[key]["peak_bytes"] for row in rows], f"o{style}", color=colour, label=label)


def _draw_line(axes: Any, rows: list[dict[str, Any]], key: str, device: str, style: str) -> None:
    """Draw seconds and memory against one quantity."""
    places = [row[key] for row in rows]
    for axis, value in zip(axes, ("seconds", "peak_bytes"), strict=True):
        axis.plot(places, [row[value] for row in rows], f"o{style}", color="C0", label=device)


def _label(axis: Any, title: str, *, unit: str, logarithmic: bool) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_ylabel(unit)
    axis.set_yscale("log" if unit == "seconds" else "symlog", **({} if unit == "seconds" else {"linthresh": 1e6}))
    axis.set_xscale("log" if logarithmic else "linear")
    axis.grid(alpha=0.3)


def main() -> None:
    """Draw all scaling-*.json of a folder into one picture."""
    source, target = map(Path, sys.argv[1:3])
    results = [json.loads(path.read_text()) for path in sorted(source.glob("scaling-*.json"))]
    if not results:
        sys.exit(f"There is no scaling-*.json in {source}. Run python -m bench.scaling --out {source} first.")
    draw(results).savefig(target / "speed-scaling.svg", metadata={"Date": None})
    print(target / "speed-scaling.svg")


if __name__ == "__main__":
    main()
