"""Print the main table of a published study, the paper's numbers in brackets: `python tools/table.py NAME`.

With ``--tuned``: what tuning gave, from results/NAME/tuned and the settings that come with the package. README.md,
docs/results.md and docs/tuning.md hold the output word for word; a test compares them.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pandas as pd

from unweave.report.printed import counterpart, printed_rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS, TUNED = ROOT / "results", ROOT / "src" / "unweave" / "benchmarks" / "tuned"
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


def tuned_table(name: str) -> str:
    """Return what tuning gave as Markdown: held-out and test scores before and after, and what it cost."""
    chosen = json.loads((TUNED / f"{name}.json").read_text())["methods"]
    lines = [
        "| method | held-out: default → tuned | test: default | test: tuned | test: one seed | failed | s "
        "| million sample gradients |",
        "|---" * 8 + "|",
    ]
    studies = [scores(RESULTS / name / folder) for folder in ("all", "tuned", "tuned-one-seed")]
    for method, row in sorted(chosen.items()):
        cost = row["cost"]
        lines.append(
            f"| {method} | {row['default_score']:.3f} → {row['score']:.3f} | "
            + " | ".join(_spread(found[method]) for found in studies)
            + f" | {cost['failed']} | {cost['seconds']:.0f} | {cost['sample_gradients'] / 1e6:.2f} |"
        )
    return "\n".join(lines)


def scores(study: Path) -> dict[str, list[float]]:
    """Return the objective of *erase* on test data, by method, of every seed."""
    frame = pd.read_parquet(study / "results.parquet")
    plain = frame[(frame.metric == "accuracy") & (frame.variant == "") & (frame.split == "test")]
    found: dict[str, list[float]] = {}
    for (method, _), rows in plain.groupby(["method", "seed"]):
        of = dict(zip(rows.subset, rows.value, strict=True))
        kept = [max(value, 0.0) for value in (1 - of["forget"], of["adjacent"], of["remote"])]
        found.setdefault(method, []).append(statistics.harmonic_mean(kept))
    return found


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    print(tuned_table(sys.argv[1]) if "--tuned" in sys.argv[2:] else table(sys.argv[1]))
