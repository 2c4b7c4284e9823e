"""What a record publishes of the scores: accuracies that are rounded so far that they do not tell samples apart.

Exact numbers of a model identify the samples that they were measured on. So a record holds only accuracies, only of
subsets with at least `FEWEST` samples, and each as a multiple of a step that `SWAPPED` samples together can hardly
reach. Two things follow, whatever else somebody knows:

- If all samples of a subset but one are known, the last one moves an accuracy by at most a tenth of its step. The
  accuracy then has at most two possible values in the record: it tells at most one bit about that sample.
- An accuracy has at most ``1 / step + 1`` values. It tells at most the logarithm of that many about the whole subset.

``docs/record.md`` says what remains, and how much of it was measured.

>>> [step_of(count) for count in (50, 100, 1000, 45_000)]
[0.2, 0.1, 0.01, 0.0005]
>>> rounded(0.9765, step_of(1000))
0.98
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from unweave.evaluation import Metric, Scores

FEWEST = 50  # samples that a subset needs
SWAPPED = 10  # samples whose answers together move an accuracy by at most one step
MEASURED = (  # conditions of a bound that come from the losses of the forget samples
    "smallest_forget_loss_before_stage_2",
    "change_of_the_protected_objective",
    "squared_wasserstein",
    "shortfall",
)
COLLAPSED = "COLLAPSE: accuracy on kept data fell far."
TENTH = 0.1


def step_of(count: int) -> float:
    """Return the step of an accuracy over so many samples: the next of 1, 2, 5, 10, ... above its smallest size."""
    smallest = SWAPPED / count
    power = 10.0 ** math.floor(math.log10(smallest))
    return round(next(power * first for first in (1, 2, 5, 10) if power * first >= smallest * (1 - 1e-9)), 12)


def rounded(value: float, step: float) -> float:
    """Return a value as a multiple of the step. Halves go up: to even ones, two could be two steps apart."""
    return round(math.floor(round(value / step, 6) + 0.5) * step, 12)


def published_scores(scores: Scores) -> dict[str, Any]:
    """Return the section ``scores`` of a record, without the digest of the exact scores."""
    counts = {
        part: {subset: {"samples": found["samples"]} for subset, found in scores[part].items()}
        for part in ("train", "test")
        if part in scores
    }
    exact = scores.to_dict()
    rows = list(published_rows(scores))
    shown = {(row["split"], row["subset"], row["metric"]) for row in rows}
    return {
        "schema": exact["schema"],
        "precision": exact.get("precision"),
        "rounding": {"fewest_samples": FEWEST, "swapped_samples": SWAPPED},
        **counts,
        "metrics": rows,
        "withheld": sorted(
            {
                " ".join(filter(None, one.place))
                for one in scores.metrics
                if one.value is not None and one.place not in shown
            }
        ),
        "collapse": COLLAPSED if scores.collapse else "",
    }


def published_rows(scores: Scores) -> Iterator[dict[str, Any]]:
    """Yield the rounded accuracies, after and before, with their step."""
    for metric in scores.metrics:
        if metric.metric != "accuracy" or not metric.subset or metric.value is None:
            continue
        count = scores[metric.split][metric.subset]["samples"]
        if count >= FEWEST:
            yield _row(metric, step_of(count))


def _row(metric: Metric, step: float) -> dict[str, Any]:
    row = {"split": metric.split, "subset": metric.subset, "metric": metric.metric, "better": metric.better}
    before = {} if metric.before is None else {"before": rounded(metric.before, step)}
    return {**row, "value": rounded(metric.value or 0.0, step), **before, "step": step}


def published_bound(exact: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the section ``certificate`` of a record: the bound rounded up to a tenth, for enough forget samples."""
    conditions = {name: value for name, value in exact["conditions"].items() if name not in MEASURED}
    if not exact["conditions"]:
        return {"bound": None, "words": exact["words"], "conditions": {}}
    if count < FEWEST:
        words = f"withheld, because there are fewer than {FEWEST} forget samples: the private file has it."
        return {"bound": None, "words": words, "conditions": conditions}
    if exact["bound"] is None:
        words = "no bound: one of its conditions does not hold, which the private file names."
        return {"bound": None, "words": words, "conditions": conditions}
    bound = min(1.0, round(math.ceil(exact["bound"] / TENTH - 1e-9) * TENTH, 12))
    words = f"at most {bound:.0%} of the {count} forget samples are predicted right (measured losses, rounded up)"
    return {"bound": bound, "words": words, "conditions": conditions}


def published_drift(request: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rounded accuracies before and after this request, by split and subset."""
    found: dict[str, Any] = {"id": request}
    for row in rows:
        change = {"before": row.get("before"), "after": row["value"]}
        found.setdefault(row["split"], {})[row["subset"]] = change
    return found
