"""Print the main table of a published study, the paper's numbers in brackets: `python tools/table.py NAME`.

README.md and docs/results.md hold its output word for word; a test compares them with results/NAME/all.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from unweave.report.printed import counterpart, printed_rows

RESULTS = Path(__file__).resolve().parents[1] / "results"
ORDER = ("original", "retrain", "ft", "ga", "l1-sparse", "scrub", "ssd", "salun", "delete", "gdr", "munba")
CELLS = [(split, subset) for split in ("train", "test") for subset in ("forget", "adjacent", "remote")]
HEAD = " | ".join(f"{split} {subset} {'↓' if subset == 'forget' else '↑'}" for split, subset in CELLS)


def table(name: str) -> str:
    """Return the table as Markdown: one row per method as it is, means ± deviation over its seeds, in percent."""
    frame = pd.read_parquet(RESULTS / name / "all" / "results.parquet")
    plain = frame[(frame.metric == "accuracy") & (frame.variant == "")]
    grouped = plain.groupby(["method", "split", "subset"]).value
    means, deviations = grouped.mean(), grouped.std()
    found = counterpart(name)
    printed = {row.method: row.values for row in reversed(printed_rows(found)) if not row.settings} if found else {}
    failed = {path.name.split(".")[0] for path in (RESULTS / name / "all" / "failed").glob("*.json")}
    methods = sorted({*plain.method, *failed}, key=lambda m: (ORDER.index(m) if m in ORDER else len(ORDER), m))
    lines = [f"| accuracy in % | seeds | {HEAD} |", "|---" * 8 + "|"]
    for method in methods:
        seeds = plain[plain.method == method].seed.nunique()
        cells = []
        for split, subset in CELLS:
            ours = f"{100 * means[method, split, subset]:.1f}" if seeds else "failed"
            ours += f"±{100 * deviations[method, split, subset]:.1f}" if seeds > 1 else ""
            theirs = printed.get(method, {}).get((split, subset))
            cells.append(ours + (f" ({100 * theirs.mean:.1f})" if theirs else ""))
        lines.append(f"| {method} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1]))
