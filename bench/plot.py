"""Draw the results of `bench.scaling`: python -m bench.plot results/speed docs/images."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NAMES = {"stage2": "stage 2", "fine_tuning": "fine-tuning", "projection": "projection alone"}


def draw(results: list[dict[str, Any]]) -> Figure:
    """Return a figure of time and memory against parameters, forget set and directions, with a line per machine."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots(2, 3)
    for result, style in zip(results, ("-", "--", ":"), strict=False):
        device = result["provenance"]["hardware"]["device"]
        rows = result["by_parameters"]
        for number, (key, name) in enumerate(NAMES.items()):
            sizes = [row["parameters"] for row in rows]
            colour = f"C{number}"
            label = f"{name}, {device}"
            axes[0, 0].plot(sizes, [row[key]["seconds"] for row in rows], f"o{style}", color=colour, label=label)
            if "peak_bytes" in rows[0][key]:
                peaks = [row[key]["peak_bytes"] for row in rows]
                axes[1, 0].plot(sizes, peaks, f"o{style}", color=colour, label=label)
        for column, (part, key) in enumerate((("by_forget_set", "forget"), ("by_directions", "directions")), start=1):
            some = result[part]
            places = [row[key] for row in some]
            axes[0, column].plot(places, [row["seconds"] for row in some], f"o{style}", color="C0", label=device)
            axes[1, column].plot(places, [row["peak_bytes"] for row in some], f"o{style}", color="C0", label=device)
    titles = (
        ("a step against parameters", "a step against forget samples", "projection against directions"),
        ("peak memory against parameters", "against forget samples", "against directions"),
    )
    for row in range(2):
        for column in range(3):
            axis = axes[row, column]
            axis.set_title(titles[row][column], fontsize=10)
            axis.set_ylabel("seconds" if row == 0 else "bytes")
            axis.set_yscale("log" if row == 0 else "symlog", **({} if row == 0 else {"linthresh": 1e6}))
            axis.set_xscale("linear" if column == 2 else "log")
            axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    axes[0, 1].legend(fontsize=7)
    return figure


def main() -> None:
    """Draw all files scaling-*.json of a folder into one picture."""
    source, target = map(Path, sys.argv[1:3])
    results = [json.loads(path.read_text()) for path in sorted(source.glob("scaling-*.json"))]
    if not results:
        sys.exit(f"There is no scaling-*.json in {source}. Run python -m bench.scaling --out {source} first.")
    draw(results).savefig(target / "speed-scaling.svg", metadata={"Date": None})
    print(target / "speed-scaling.svg")


if __name__ == "__main__":
    main()
