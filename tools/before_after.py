"""Draw the README's picture from a run of the README's example: `python tools/before_after.py`.

The bars are shares of unseen images that the network recognises, before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from places import IMAGES, ROOT

PICTURE = IMAGES / "before-after.png"
NAMES = {"forget": "what must go\n(nines)", "adjacent": "what looks like it\n(1, 4, 7)", "remote": "the rest"}
BEFORE, AFTER, INK = "#b8c4cf", "#30638e", "#333333"


def example() -> str:
    """Return the first Python example of README.md."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    if found is None:
        raise SystemExit("README.md has no Python example.")
    return found[1]


def draw(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw accuracy on test data before and after, for every subset; ``rows`` are those of a verdict."""
    shown = {row["subset"]: row for row in rows if row["split"] == "test"}
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, subset in enumerate(NAMES):
        for side, when, colour in ((-0.2, "before", BEFORE), (0.2, "after", AFTER)):
            height = 100 * shown[subset][when]
            axis.bar(place + side, height, width=0.36, color=colour, label=when if place == 0 else None)
            axis.text(place + side, height + 2, f"{height:.0f}%", ha="center", fontsize=10, color=INK)
    axis.set_xticks(range(len(NAMES)), NAMES.values(), fontsize=10, color=INK)
    axis.set_ylim(0, 115)
    axis.set_yticks([])
    axis.set_title("Share of unseen images that the network gets right", fontsize=11, color=INK, loc="left")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(length=0)
    axis.legend(frameon=False, fontsize=10, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(file, dpi=150)


def main() -> None:
    """Run the example and draw its result."""
    space: dict[str, Any] = {}
    exec(compile(example(), "README.md", "exec"), space)
    draw(space["result"].verdict.rows, PICTURE)
    print(f"Wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
