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
    before = "" if row.get("before") is None else f" ({_percent(row['before'])} before)"
    half = _step(row) / 2
    most, least = row["value"] + half, row["value"] - half
    if least <= FORGOTTEN < most:
        return (
            f"Forgotten: at most {_percent(most)} of the forget samples are recognised{before}. The record rounds "
            f"accuracies, so it does not tell whether the limit of {_percent(FORGOTTEN)} is met."
        )
    answer = "yes" if most <= FORGOTTEN else "no"
    return f"Forgotten: {answer}. {_percent(row['value'])} of the forget samples are recognised{before}."


def _kept(record: Mapping[str, Any]) -> str:
    rows = [one for one in _accuracies(record) if one["subset"] in RETAINED and one.get("before") is not None]
    judged = [one for one in rows if one["split"] == "test"] or rows
    if not judged:
        return "Kept: the record does not tell."
    # Both accuracies may be off by half a step, so their difference may be off by a step.
    worst = max(judged, key=lambda one: (_loss(one) - _step(one), _loss(one)))
    most = max(_loss(one) + _step(one) for one in judged)
    limit = KEPT + 1e-9
    if _loss(worst) - _step(worst) <= limit < most:
        return (
            f"Kept: no accuracy on data to keep fell by more than {_points(most)}. The record rounds accuracies, so it "
            f"does not tell whether the limit of {_points(KEPT)} is met."
        )
    if _loss(worst) <= 0:
        return "Kept: yes. No accuracy on data to keep fell."
    place = f"{worst['split']} {worst['subset']}".capitalize()
    return f"Kept: {'yes' if most <= limit else 'no'}. {place} accuracy fell most, by {_points(_loss(worst))}."


def _step(row: Mapping[str, Any]) -> float:
    """Return the step that an accuracy is rounded to; 0 if it is exact."""
    return float(row.get("step") or 0)


def _loss(row: Mapping[str, Any]) -> float:
    return float(row["before"] - row["value"])


def _points(share: float) -> str:
    number = f"{100 * share:.3g}"
    return f"{number} {'point' if number == '1' else 'points'}"


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
