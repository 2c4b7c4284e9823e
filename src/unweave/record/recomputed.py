"""Compare scores that were computed again with the scores of a record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from unweave.evaluation import Metric, Scores
from unweave.record.checks import Check
from unweave.record.rounding import published_rows
from unweave.record.verify import some

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.03}  # by precision: devices round differently
CERTIFIED = {"forget_bound": "bound", "forget_bound_tighter": "tighter_bound"}  # entries of the certificate, by metric


def check_scores(record: Mapping[str, Any], scores: Scores, *, tolerance: float | None = None) -> Check:
    """Check that numbers computed again agree with the record, and name the one that differs most.

    A number that the record does not hold counts as a difference. If the record's scores have an older schema, the
    number is named instead. Numbers that were not computed again are skipped, such as the values before unlearning
    when the original was not given. The default ``tolerance`` suits the precision of the record.

    Of a record with rounded scores, the accuracies are compared. `with_exact` returns one with exact scores.
    """
    if tolerance is None:
        tolerance = TOLERANCE.get(str(record["scores"].get("precision")), TOLERANCE["float32"])
    if "rounding" in record["scores"]:
        return _check_rounded(record, scores, tolerance)
    found = list(_again(record, scores))
    missing = [name for name, known, _ in found if known is None] if _is_older(record, scores) else []
    compared = [(name, _number(known), now) for name, known, now in found if name not in missing]
    off = [
        (math.inf if known is None else abs(known - now), f"{name} is {now:.4g}, {_short(known)}")
        for name, known, now in compared
        if known is None or not math.isclose(known, now, rel_tol=tolerance, abs_tol=tolerance)
    ]
    if off:
        return Check("scores", False, f"{len(off)} of {len(compared)} differ; furthest: {max(off)[1]}")
    words = f"all {len(compared)} that were computed again agree within {tolerance:g}"
    return Check("scores", True, words + (f"; this older record does not hold {some(missing)}" if missing else ""))


def _check_rounded(record: Mapping[str, Any], scores: Scores, tolerance: float) -> Check:
    """Compare accuracies computed again with the rounded ones. A small difference may round to the next step."""
    rows = {(row["split"], row["subset"], row["metric"]): row for row in record["scores"]["metrics"]}
    off, count = [], 0
    for mine in published_rows(scores):
        place = (mine["split"], mine["subset"], mine["metric"])
        row = rows.get(place, {})
        drift = ((record["drift"] or [{}])[-1].get(place[0]) or {}).get(place[1]) or {}
        pairs = [("value", row.get("value"), mine["value"]), ("drift", drift.get("after"), mine["value"])]
        pairs += [("before", row.get("before"), mine["before"])] if "before" in mine else []
        count += len(pairs)
        for entry, said, now in pairs:
            known = _number(said)
            if known is None or abs(known - now) > mine["step"] * 1.001 + tolerance:
                off.append(f"{' '.join(place)} ({entry}) is {now:.4g}, {_short(known)}")
    if off:
        return Check("scores", False, f"{len(off)} of {count} differ: {off[0]}")
    if not count:
        return Check("scores", None, "not checked: the record publishes none, and the exact ones are private")
    words = f"all {count} accuracies that the record publishes agree within their rounding; the exact ones are private"
    return Check("scores", True, words)


def _is_older(record: Mapping[str, Any], scores: Scores) -> bool:
    """Tell whether the record's scores have an older schema."""
    schema = record["scores"].get("schema")
    return isinstance(schema, int) and schema < scores.to_dict()["schema"]


def _number(known: Any) -> float | None:
    """Return an entry of a record as a float; None if it is not a number, or too large."""
    return float(known) if isinstance(known, int | float) and abs(known) < 1e300 else None


def _again(record: Mapping[str, Any], scores: Scores) -> Iterator[tuple[str, Any, float]]:
    """Yield the name of each number, its value in the record, and its value computed again."""
    rows = {(row["split"], row["subset"], row["metric"]): row for row in record["scores"]["metrics"]}
    for metric in scores.metrics:
        row, name = rows.get(metric.place, {}), " ".join(filter(None, metric.place))
        for entry in ("value", "low", "high", "before"):
            if (now := getattr(metric, entry)) is not None and math.isfinite(now) and not _is_certified(metric, row):
                yield f"{name} ({entry})", row.get(entry), now
        yield from _in_other_sections(record, metric, name)
    certified = {metric.metric for metric in scores.metrics if _is_certified(metric, rows.get(metric.place, {}))}
    for part in ("train", "test", "model"):
        for name, known, now in _numbers(part, record["scores"].get(part), scores[part]) if part in scores else ():
            if name.split()[-1] not in certified:
                yield name, known, now


def _is_certified(metric: Metric, row: Mapping[str, Any]) -> bool:
    """Tell whether only the certificate holds this bound, because the run did not measure it for its scores."""
    return metric.metric in CERTIFIED and "value" in row and row["value"] is None


def _in_other_sections(record: Mapping[str, Any], metric: Metric, name: str) -> Iterator[tuple[str, Any, float]]:
    """Yield the same for the drift and the certificate, which repeat some scores."""
    if metric.value is None:
        return
    if metric.metric == "accuracy" and metric.subset:
        drift = record["drift"][-1] if record["drift"] else {}
        change = (drift.get(metric.split) or {}).get(metric.subset) or {}
        yield f"{name} (drift)", change.get("after"), metric.value
    if metric.metric in CERTIFIED:
        entry = CERTIFIED[metric.metric]
        yield f"the certificate's {entry.replace('_', ' ')}", record["certificate"].get(entry), metric.value


def _numbers(name: str, known: Any, now: Any) -> Iterator[tuple[str, Any, float]]:
    """Yield the same for the numbers in nested values."""
    if isinstance(now, Mapping):
        for key, entry in now.items():
            yield from _numbers(f"{name} {key}", known.get(key) if isinstance(known, Mapping) else None, entry)
    elif isinstance(now, list | tuple):
        there = known if isinstance(known, list) and len(known) == len(now) else [None] * len(now)
        for place, (old, entry) in enumerate(zip(there, now, strict=True)):
            yield from _numbers(f"{name} {place}", old, entry)
    elif isinstance(now, int | float) and math.isfinite(now):
        yield name, known, now


def _short(number: float | None) -> str:
    return "missing in the record" if number is None else f"not {number:.4g}"
