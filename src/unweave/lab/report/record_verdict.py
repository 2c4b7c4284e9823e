"""What a deletion record says in a sentence, and its bound beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unweave.data import RETAINED

FORGOTTEN, KEPT = 0.01, 0.02  # as in the verdict on a run
BOUND = (
    "The bound follows from the losses of the forget samples: not more of them can be recognised, whatever the model "
    "answers. The measured value is what it does recognise, so it lies at or below the bound. A bound near 100% says "
    "nothing."
)


def verdict_of(record: Mapping[str, Any]) -> str:
    """Return the verdict on a record in a sentence or two, from the numbers that it publishes.

    >>> row = {"split": "train", "subset": "forget", "metric": "accuracy", "value": 0.0, "before": 1.0, "step": 0.01}
    >>> verdict_of({"scores": {"metrics": [row]}})
    'Forgotten: yes. 0% of the forget samples are recognised (100% before). Kept: the record does not tell.'
    """
    return f"{_forgotten(record)} {_kept(record)}"


def _forgotten(record: Mapping[str, Any]) -> str:
    row = next((one for one in _accuracies(record) if one["subset"] == "forget"), None)
    if row is None:
        return "Forgotten: the record does not tell, because numbers of few samples are withheld."
    answer = "yes" if row["value"] <= FORGOTTEN else "no"
    before = "" if row.get("before") is None else f" ({_percent(row['before'])} before)"
    return f"Forgotten: {answer}. {_percent(row['value'])} of the forget samples are recognised{before}."


def _kept(record: Mapping[str, Any]) -> str:
    rows = [one for one in _accuracies(record) if one["subset"] in RETAINED and one.get("before") is not None]
    judged = [one for one in rows if one["split"] == "test"] or rows
    if not judged:
        return "Kept: the record does not tell."
    worst = min(judged, key=lambda one: one["value"] - one["before"])
    loss = worst["before"] - worst["value"]
    if loss <= 0:
        return "Kept: yes. No accuracy on data to keep fell."
    answer = "yes" if loss <= KEPT + 1e-9 else "no"
    place = f"{worst['split']} {worst['subset']}".capitalize()
    points = f"{100 * loss:.3g}"
    return f"Kept: {answer}. {place} accuracy fell most, by {points} {'point' if points == '1' else 'points'}."


def bound_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the bound beside the measured value, and what they mean; empty if the record has no bound.

    >>> bound_of({"certificate": {"bound": None}, "scores": {"metrics": []}})
    {}
    """
    bound = record["certificate"].get("bound")
    if bound is None:
        return {}
    row = next((one for one in _accuracies(record) if one["subset"] == "forget"), None)
    measured = "withheld" if row is None else _percent(row["value"])
    return {"bound": f"at most {_percent(bound)}", "measured": measured, "words": BOUND}


def _accuracies(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the accuracies that a record publishes, those of training data first."""
    for row in record["scores"]["metrics"]:
        if row["metric"] == "accuracy" and row["subset"] and row.get("value") is not None:
            yield row


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
