"""The card of an unlearned model: how it was unlearned, with which scores and limits. It identifies nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unweave._version import __version__
from unweave.errors import on_one_line
from unweave.evaluation import Metric, Scores

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
LIMITS = (
    "Unlearning changed a trained model. It does not prove that the result equals a model that never saw the data; "
    "only retraining without it would.",
    "Attacks stronger than those that were measured may still find traces of the forgotten data.",
    "Only this model was changed. Copies of the data, other models and backups are not covered.",
)


def model_card(
    config: Mapping[str, Any], scores: Scores, verdict: str, counts: Mapping[str, int], *, library: str
) -> str:
    """Return the text of a model card.

    Args:
        config: The configuration of the run. Of it, the card shows the method with its settings, and the request's id.
        scores: What was measured.
        verdict: Whether the model forgot what it had to, and kept the rest, in words.
        counts: How many samples each subset of the training data has.
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
    parts.append("## The verdict\n\n```text\n" + verdict + "\n```")
    if rows := [metric for metric in scores.metrics if _is_accuracy(metric)]:
        parts.append("## Before and after\n\n" + _table(rows))
    parts.append("## What this does not show\n\n" + "\n".join(f"- {limit}" for limit in limits_of(config, scores)))
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.get("settings", {}).items())
    parts.append(f"## Settings\n\n| setting | value |\n|---|---|\n{settings}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _counted(counts: Mapping[str, int], request: Any) -> str:
    kept = ", ".join(f"{counts[subset]:,} {subset}" for subset in ("adjacent", "remote") if counts.get(subset))
    words = f"{counts.get('forget', 0):,} samples were to be forgotten" + (f"; kept: {kept}." if kept else ".")
    if earlier := counts.get("forgotten"):
        words += f" {earlier:,} samples of earlier requests were to stay forgotten."
    return f"Request {on_one_line(request)}: {words}" if isinstance(request, str) else words


def _is_accuracy(metric: Metric) -> bool:
    return metric.metric == "accuracy" and bool(metric.subset) and metric.value is not None


def _table(rows: list[Metric]) -> str:
    lines = ["| data | subset | accuracy before | accuracy after |", "|---|---|---|---|"]
    for row in rows:
        before = "–" if row.before is None else f"{row.before:.1%}"
        lines.append(f"| {row.split} | {row.subset} | {before} | {row.value:.1%} |")
    return "\n".join(lines)


def limits_of(config: Mapping[str, Any], scores: Scores) -> list[str]:
    """Return what every unlearned model leaves open, and what this one does in addition."""
    found = list(LIMITS)
    if "test" not in scores:
        found.append("No test data was given, so the scores cover the training data only.")
    if not any(metric.reference is not None for metric in scores.metrics):
        found.append("No retrained model was compared with it.")
    if scores.collapse:
        found.append(f"The unlearning harmed kept data. {scores.collapse}")
    if config.get("limits") is None:
        found.append("The guard against collapse was turned off.")
    return found
