"""The card of an unlearned model: how it was unlearned, with which scores and limits. It identifies nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unweave._version import __version__
from unweave.errors import on_one_line
from unweave.evaluation import Scores

HEAD = """---
library_name: {library}
tags:
- machine-unlearning
- unweave
---

# A model after unlearning

Part of the data that this model was trained on was to be forgotten. It was unlearned with unweave {version}, by the
method {method} (profile {profile}), with seed {seed} in {precision}.
"""
ROUNDED = "Accuracies are rounded, and those of fewer than 50 samples left out: exact ones may tell who was forgotten."
LIMITS = (
    "Unlearning changed a trained model. It does not prove that the result equals a model that never saw the data; "
    "only retraining without it would.",
    "Attacks stronger than those that were measured may still find traces of the forgotten data.",
    "Only this model was changed. Copies of the data, other models and backups are not covered.",
)


def model_card(
    config: Mapping[str, Any],
    scores: Scores,
    verdict: str,
    counts: Mapping[str, int],
    *,
    rows: Sequence[Mapping[str, Any]] = (),
    library: str,
) -> str:
    """Return the text of a model card.

    Args:
        config: The configuration of the run. Of it, the card shows the method with its settings, and the request's id.
        scores: What was measured.
        verdict: Whether the model forgot what it had to, and kept the rest, in words without numbers.
        counts: How many samples each subset of the training data has.
        rows: The accuracies that may be published, each with its step (`record.published_rows`).
        library: The library that opens the model.

    Returns:
        Markdown, with the entries on top that the Hugging Face Hub reads.

    >>> config = {"method": "ga", "profile": "default", "settings": {"epochs": 5}, "seed": 0, "precision": "float32"}
    >>> card = model_card(config, Scores({}), "Forgotten: yes.", {"forget": 50, "remote": 900}, library="peft")
    >>> print(card.partition("## The data")[2].partition("##")[0].strip())
    50 samples were to be forgotten; kept: 900 remote.
    """
    given = {name: config.get(name, "unknown") for name in ("method", "profile", "seed", "precision")}
    parts = [HEAD.format(library=library, version=__version__, **given)]
    parts.append("## The data\n\n" + _counted(counts, config.get("request")))
    parts.append(f"## The verdict\n\n{verdict}")
    if rows:
        parts.append(f"## Before and after\n\n{_table(rows)}\n\n{ROUNDED}")
    parts.append(
        "## What this does not show\n\n" + "\n".join(f"- {limit}" for limit in limits_of(config, scores, numbers=False))
    )
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.get("settings", {}).items())
    parts.append(f"## Settings\n\n| setting | value |\n|---|---|\n{settings}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _counted(counts: Mapping[str, int], request: Any) -> str:
    kept = ", ".join(f"{counts[subset]:,} {subset}" for subset in ("adjacent", "remote") if counts.get(subset))
    words = f"{counts.get('forget', 0):,} samples were to be forgotten" + (f"; kept: {kept}." if kept else ".")
    if earlier := counts.get("forgotten"):
        words += f" {earlier:,} samples of earlier requests were to stay forgotten."
    return f"Request {on_one_line(request)}: {words}" if isinstance(request, str) else words


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| data | subset | accuracy before | accuracy after | in steps of |", "|---|---|---|---|---|"]
    for row in rows:
        before, after, step = (_percent(row.get(name), row["step"]) for name in ("before", "value", "step"))
        lines.append(f"| {row['split']} | {row['subset']} | {before} | {after} | {step} |")
    return "\n".join(lines)


def _percent(value: float | None, step: float) -> str:
    digits = max(0, math.ceil(-math.log10(step) - 2 - 1e-9))
    return "–" if value is None else f"{value:.{digits}%}"


def limits_of(config: Mapping[str, Any], scores: Scores, *, numbers: bool = True) -> list[str]:
    """Return what every unlearned model leaves open, and what this one does too; ``numbers`` are for the owner."""
    found = list(LIMITS)
    if "test" not in scores:
        found.append("No test data was given, so the scores cover the training data only.")
    if not any(metric.reference is not None for metric in scores.metrics):
        found.append("No retrained model was compared with it.")
    if scores.collapse:
        found.append(
            "The unlearning harmed kept data" + (f". {scores.collapse}" if numbers else ": its accuracy fell far.")
        )
    if config.get("limits") is None:
        found.append("The guard against collapse was turned off.")
    return found
