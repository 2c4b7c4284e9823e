"""Which four methods the oracle tunes: those that were best in development, by the rule of docs/protocol.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from bench.strangers.oracle import best_of, in_complete_rounds
from bench.strangers.summary import KEPT
from unweave.methods import methods_for

Row: TypeAlias = Mapping[str, Any]
CHOSEN = 4
TRIALS = 6  # of each method on each task
# Development tasks whose run of the defaults took less than ten seconds in results/strangers/development.jsonl.
TASKS = (
    *("blobs-mlp-cluster", "clinc-gru-recipe", "digits-mlp-three", "fashion-vit-bag", "clinc-gru-weather"),
    *("cifar-vit-dark", "toxigen-encoder-mexican", "fashion-mlp-1percent", "digits-cnn-20", "fashion-cnnbn-wrong"),
    "clinc-bag-wrong",
)


def candidates() -> tuple[str, ...]:
    """Return the methods for classifiers that have something to tune.

    >>> "adaptive" in candidates(), "retrain" in candidates()
    (True, False)
    """
    return tuple(name for name, method in methods_for(tokens=False).items() if method.searched())


def ranking(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return each method's mean regret in points, and on how many tasks it has a valid trial; the best first.

    On a task, a method has the accuracy of its best valid trial on the second half, the mean of adjacent and remote
    data; without a valid trial it has 0. Its regret is what it lacks beside the best method there.
    """
    found = _accuracies(list(rows))
    best = {task: max(values.values()) for task, values in found.items()}
    judged = [task for task in found if best[task] > 0]
    methods = sorted({method for values in found.values() for method in values})
    table = {
        method: {
            "regret": 100 * statistics.fmean(best[task] - found[task][method] for task in judged),
            "valid": sum(found[task][method] > 0 for task in judged),
            "tasks": len(judged),
        }
        for method in methods
    }
    return dict(sorted(table.items(), key=lambda item: (item[1]["regret"], item[0])))


def chosen(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the four best methods."""
    return tuple(ranking(rows))[:CHOSEN]


def _accuracies(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the accuracy of every method, by task."""
    methods = sorted({row["method"] for row in rows})
    found: dict[str, dict[str, float]] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        trials = in_complete_rounds((dict(row) for row in rows if row["task"] == task), methods)
        by_method = {method: best_of(row for row in trials if row["method"] == method) for method in methods}
        found[task] = {method: _on_second(best) if best else 0.0 for method, best in by_method.items()}
    return found


def _on_second(row: Row) -> float:
    return statistics.fmean(row[f"second {name}"] for name in KEPT if row[f"second {name}"] is not None)
