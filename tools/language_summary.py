"""Sum up a study of language models: `python tools/language_summary.py STUDY` writes summary.md and summary.json.

For every method: what is left of the forgotten answers beside the retrained model, and what the neighbours lost against
the original. The last column is how many times as much adjacent probability a method loses as ``adaptive``, which is
the default, with a bootstrap interval over the adjacent questions; a method's loss on a question is its mean over the
seeds. ``summary.json`` has these losses, question by question.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unweave.evaluation import load_answers
from unweave.evaluation.answer_probability import probabilities
from unweave.lab.report import read_results
from unweave.lab.report.measures import Place
from unweave.lab.study import Store

OURS = "adaptive"
NOT_OTHERS = ("unweave",)  # ours, too
REFERENCE = "retrain"
RESAMPLES = 2000
FEWEST = 1e-3  # a smaller loss counts as this one, so that ratios stay finite
COLUMNS = {
    "forget EM": ("forget", "exact_memorisation"),
    "forget ES": ("forget", "extraction_strength"),
    "forget p": ("forget", "probability"),
    "forget ROUGE": ("forget", "rouge"),
    "quality": ("forget", "forget_quality"),
    "KS": ("forget", "ks_statistic"),
    "adjacent p": ("adjacent", "probability"),
    "adjacent ROUGE": ("adjacent", "rouge"),
    "remote p": ("remote", "probability"),
    "remote ROUGE": ("remote", "rouge"),
    "utility": ("", "model_utility"),
}


def write(study: Path) -> str:
    """Write both files, and return the table."""
    results = read_results(study)
    rows = {
        results.label(group): {
            "method": group.method,
            "profile": group.profile,
            "seeds": results.seeds_of(group),
            **{
                name: {"mean": spread.mean, "deviation": spread.deviation}
                for name, place in COLUMNS.items()
                if (spread := results.spread(group, Place("answers", *place)))
            },
        }
        for group in results.groups
        if group in results.values
    }
    losses = _losses(study, {label: row for label, row in rows.items() if row["method"] != "original"})
    _judge(rows, losses)
    (study / "summary.json").write_text(json.dumps(rows, indent=2) + "\n")
    table = _table(rows, results.benchmark)
    (study / "summary.md").write_text(table)
    return table


def _losses(study: Path, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return by how much each adjacent answer became less probable, in the mean over the seeds."""
    found: dict[str, Any] = {}
    for label, row in rows.items():
        every = []
        for labels in _cells(study, row["method"], row["profile"]):
            before = _adjacent(study, next(iter(_cells(study, "original", None, labels["seed"])), None))
            after = _adjacent(study, labels)
            if before is not None and after is not None:
                every.append(before - after)
        if every:
            found[label] = np.mean(every, axis=0)
    return found


def _cells(study: Path, method: str, profile: str | None, seed: int | None = None) -> list[dict[str, Any]]:
    """Return the labels of the finished cells of a method."""
    store = Store.open(study)
    return [
        {**labels, "folder": store.cells / name}
        for name, labels in store.finished(method).items()
        if profile in (None, labels["profile"]) and not labels["variant"] and seed in (None, labels["seed"])
    ]


def _adjacent(study: Path, labels: Mapping[str, Any] | None) -> Any:
    file = labels["folder"] / "answers.json" if labels else study / "none"
    return probabilities(load_answers(file)["adjacent"]) if file.exists() else None


def _judge(rows: dict[str, Any], losses: Mapping[str, Any]) -> None:
    """Add to every row whether it forgets as retraining does, its loss on adjacent answers, and the ratio to ours."""
    floor = rows.get(REFERENCE, {})
    ours = next((losses[label] for label, row in rows.items() if row["method"] == OURS and label in losses), None)
    for label, row in rows.items():
        named = [name for name in ("forget EM", "forget ES") if name in row and name in floor]
        if named and row["method"] not in (REFERENCE, "original"):
            row["forgets"] = all(row[name]["mean"] <= floor[name]["mean"] for name in named)
        if label in losses:
            row["adjacent loss"] = float(losses[label].mean())
            row["adjacent losses"] = [round(float(one), 4) for one in losses[label]]
            if ours is not None and row["method"] not in (OURS, REFERENCE):
                row["ratio"] = _ratio(losses[label], ours)


def _ratio(theirs: Any, ours: Any) -> dict[str, float]:
    """Return theirs / ours with a percentile interval over the questions."""
    chance = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        places = chance.integers(0, len(ours), len(ours))
        drawn.append(max(theirs[places].mean(), FEWEST) / max(ours[places].mean(), FEWEST))
    low, high = np.percentile(drawn, [2.5, 97.5])
    value = max(theirs.mean(), FEWEST) / max(ours.mean(), FEWEST)
    return {"value": float(value), "low": float(low), "high": float(high)}


def _table(rows: Mapping[str, Any], title: str) -> str:
    names = list(COLUMNS)
    heads = ["method", "seeds", *names, "forgets", "adjacent loss / ours"]
    lines = [f"# {title}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for label, row in rows.items():
        cells = [label, str(len(row["seeds"]))]
        cells += [
            f"{row[name]['mean']:.3g}" if name == "quality" and name in row else _text(row.get(name)) for name in names
        ]
        cells.append({True: "yes", False: "no"}.get(row.get("forgets"), ""))
        ratio = row.get("ratio")
        cells.append(f"{ratio['value']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})" if ratio else "")
        lines.append(f"| {' | '.join(cells)} |")
    note = "Forgets: exact memorisation and extraction strength on forget are at or below the retrained model's."
    return "\n".join([*lines, "", f"{note} {_best(rows)}", ""])


def _text(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else f"{found['mean']:.3f}"


def _best(rows: Mapping[str, Any]) -> str:
    """Name the other method that loses the least among those that forget."""
    others = {
        label: row["ratio"]
        for label, row in rows.items()
        if row.get("forgets") and "ratio" in row and row["method"] not in NOT_OTHERS
    }
    if not others:
        return "No other method forgets as much."
    label = min(others, key=lambda label: others[label]["value"])
    ratio = others[label]
    words = f"{ratio['value']:.2f} times ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return f"The best other method that forgets, {label}, loses {words} as much adjacent probability as {OURS}."


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
