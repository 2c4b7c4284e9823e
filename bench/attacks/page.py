"""The tables of the attacks as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.attacks.models import ORIGINAL


def tables(found: Mapping[str, Any]) -> str:
    """Return both tables, each with the number of its models."""
    parts = []
    for subset in ("forget", "adjacent"):
        rows = [row for row in found["ulira"] if row["subset"] == subset]
        parts.append(f"U-LiRA on {subset} data, {rows[0]['models']} shadow models, {rows[0]['samples']} samples:\n")
        parts.append(f"{_ulira(rows)}\n")
    count = found["klom"][0]["models"]
    parts.append(f"KLOM, {count} models against {count} retrained ones:\n\n{_klom(found['klom'])}")
    return "\n".join(parts)


def _ulira(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = ("method", "AUC", "TPR at 1% FPR", "TPR at 0.1% FPR", "told right, sample: median", "95th percentile")
    heads += ("most", "samples above chance")
    lines = [f"| {' | '.join(heads)} |", f"| :--- |{' ---: |' * (len(heads) - 1)}"]
    for row in sorted(rows, key=lambda row: (row["method"] != ORIGINAL, row["method"])):
        cells = [f"{_with_interval(row['auc'], '.3f')}"]
        cells += [_with_interval([100 * value for value in row[name]], ".1f", "%") for name in ("tpr_1", "tpr_01")]
        cells += [f"{100 * row['sample_median']:.0f}%", f"{100 * row['sample_95th']:.0f}%"]
        cells += [_with_interval([100 * value for value in row["sample_most"]], ".0f", "%")]
        cells += [f"{100 * row['above_chance']:.1f}%"]
        lines.append(f"| {' | '.join([row['method'], *cells])} |")
    return "\n".join(lines)


def _klom(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(row["data"] for row in rows))
    lines = [f"| method | {' | '.join(names)} |", f"| :--- |{' ---: |' * len(names)}"]
    for method in dict.fromkeys(row["method"] for row in rows):
        of = {row["data"]: row for row in rows if row["method"] == method}
        cells = [f"{_with_interval(of[name]['mean'], '.2f')}; {of[name]['p95']:.1f}" for name in names]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_interval(values: Sequence[float], form: str, unit: str = "") -> str:
    value, low, high = (format(one, form) for one in values)
    return f"{value}{unit} ({low}–{high})"
