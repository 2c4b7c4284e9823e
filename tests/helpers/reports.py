"""Made-up studies for the report."""

from __future__ import annotations

import json
import re

import numpy as np

from tests.helpers.folders import write_configuration
from unweave.lab.study import PRESETS, Cell, Store
from unweave.methods import METHODS as METHOD_TABLE

HOSTILE = "<script>alert(1)</script>"

VARIANT = "a_b=50%&$x|{y}^~\\#"

ERROR = '</script><img src=x onerror="window.hacked=1"> diverged & stopped: 100% of it'

SUBSETS = ("forget", "adjacent", "remote")

WATCHED = ("two-stage", "pgd")  # methods that log accuracies and store losses between their stages

CELLS = [(split, subset) for split in ("train", "test") for subset in ("forget", "adjacent", "remote")]

METHODS = {
    ("original", ""): (1.0, 0.99, 0.99),
    ("retrain", ""): (0.12, 0.99, 0.99),
    ("two-stage", ""): (0.01, 0.98, 0.985),
    ("ft", ""): (0.8, 0.99, 0.99),
    ("ga", ""): (0.0, 0.6, 0.95),
    (HOSTILE, VARIANT): (0.3, 0.95, 0.97),
}


def scores_of(accuracies, random):
    """Return the scores of a run in the form in which runs write them."""
    scores = {"schema": 2, "train": {}, "test": {}, "metrics": []}
    for split, subset in CELLS:
        level = accuracies[("forget", "adjacent", "remote").index(subset)]
        accuracy = float(np.clip(level - 0.01 * (split == "test") + random.normal(0, 0.002), 0, 1))
        losses = random.exponential(1 + 5 * (1 - accuracy), 50)
        counts, edges = np.histogram(losses, 10)
        found = {"accuracy": accuracy, "loss": float(losses.mean())}
        if (split, subset) == ("train", "forget"):
            found |= {
                "mia_svc_confidence": 1 - accuracy,
                "mia_population_auc": 0.5 + accuracy / 20,
                "new_measure": 3.25,
            }
        histogram = {"edges": edges.tolist(), "counts": counts.tolist()}
        scores[split][subset] = {"samples": 50, **found, "loss_histogram": histogram}
        for metric, value in found.items():
            better = "reference" if metric.startswith("mia") else "lower" if subset == "forget" else "higher"
            better = {"lower": "higher", "higher": "lower"}[better] if metric == "loss" else better
            row = {"split": split, "subset": subset, "metric": metric, "value": value, "better": better}
            scores["metrics"].append(row)
    return scores | {
        "cost": {"seconds": float(random.uniform(1, 9)), "peak_memory_bytes": int(random.integers(1e8, 1e9))}
    }


def write_cell(store, method, variant, seed, accuracies, random, *, settings=None, name=None):
    parts = [re.sub(r"[^a-z0-9=-]", "_", part) for part in (method, variant) if part]
    folder = store.cells / (name or ".".join([*parts, f"seed-{seed}"]))
    folder.mkdir()
    profile = next(iter(METHOD_TABLE[method].profiles)) if method in METHOD_TABLE else "official"
    labels = {"variant": variant, "method": method, "profile": profile, "seed": seed}
    config = {
        "unweave": "0.1.0",
        "torch": "2",
        "cell": labels,
        "settings": settings or {},
        "notes": {"data": "made up"},
    }
    write_configuration(folder, config)
    rows = [
        {"phase": "first" if step < 30 else "second", "step": step % 370, "forget_loss": step / 10, "multiplier": 1.0}
        for step in range(0 if method == "original" else 400)
    ]
    if method in WATCHED:
        for row in rows[::20]:
            row |= {f"{mark}{subset}_accuracy": row["step"] / 400 for mark in ("", "test_") for subset in SUBSETS}
            row["watched_forget_loss"] = row["forget_loss"] + 1
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = scores_of(accuracies, random)
    if method in WATCHED:
        scores["stages"] = {"first": {**scores["train"]["forget"], "accuracy": 0.0}}
    (folder / "scores.json").write_text(json.dumps(scores))


def make_study(folder, *, benchmark="digits", methods=METHODS, seeds=3, failures=True, presets=()):
    """Write a study with invented numbers: hostile names, a method that failed, and one that failed with one seed."""
    store = Store.create(folder, benchmark)
    random = np.random.default_rng(0)
    for (method, variant), accuracies in methods.items():
        for seed in range(seeds - (failures and method == "ft")):
            write_cell(store, method, variant, seed, accuracies, random)
    if failures:
        for seed in range(2):
            store.note_failure(Cell(method="salun", seed=seed), RuntimeError(ERROR))
        store.note_failure(Cell(method="ft", seed=seeds - 1), RuntimeError("loss became nan in step 7"))
    for name in presets:
        rows = [[labels[key] for key in ("method", "profile", "variant")] for labels in store.finished().values()]
        summary, shows = f"What of {HOSTILE}?", list(PRESETS[name].shows)
        store.add_presets({name: {"summary": summary, "shows": shows, "about": [], "rows": rows}})
    store.write_table()
    return folder
