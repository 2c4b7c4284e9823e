"""What a record does not show, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unweave.data import Partition
from unweave.evaluation import Scores
from unweave.record.rounding import COLLAPSED, FEWEST

ALWAYS = (
    "Unlearning changed a trained model. It does not prove that the result equals a model that never saw the data; "
    "only retraining without it would.",
    "The record is about this one model. Copies of the data, other models, caches and backups are not covered.",
    "Attacks stronger than those in the scores may still find traces of the forget data.",
    "The hashes say which weights and samples were used, and a signature says who vouches for them. Neither "
    "shows that the numbers are true. Anyone with the model and the data can compute them again (unweave record verify "
    "--recompute).",
)


def stated_limits(
    split: Partition,
    scores: Scores,
    certificate: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    unknown: Sequence[str] = (),
) -> list[str]:
    """Return the limits of this record: those of every record, and those of its own run."""
    found = list(ALWAYS)
    found.append(
        f"Accuracies are rounded, and those of fewer than {FEWEST} samples are withheld, because exact numbers tell "
        "which samples were forgotten. The record is bound to the exact numbers, which its owner keeps."
    )
    if certificate["bound"] is None and certificate["words"].startswith("withheld"):
        found.append(f"The upper bound on the accuracy on forget samples is {certificate['words']}")
    elif certificate["bound"] is None:
        found.append(f"There is no upper bound on the accuracy on forget samples ({certificate['words']})")
    else:
        found.append(
            "The bound holds for accuracy on these forget samples, from their measured losses. It is not a privacy "
            "guarantee."
        )
    if "test" not in scores:
        found.append("No test data was given, so the scores cover the training data only.")
    if not any(metric.reference is not None for metric in scores.metrics):
        found.append(
            "No retrained model was compared, so the scores do not show whether the model behaves as if never trained."
        )
    if scores.collapse:
        found.append(f"The unlearning harmed kept data. {COLLAPSED}")
    if config.get("limits") is None:
        found.append("The guard against collapse was turned off.")
    if split.samples.varies(split.rows("forget")):
        found.append("The data has random transforms. The hashes of samples come from one fixed reading.")
    if unknown:
        found.append(f"This record was written after the run, from its folder. Not known: {', '.join(unknown)}.")
    return found
