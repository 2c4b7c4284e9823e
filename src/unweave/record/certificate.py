"""The upper bound on forget accuracy that a record gives, with the conditions that it was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from unweave.data import Partition
from unweave.evaluation import BeforeStage2, Predictions, Scores, forgetting_bound, predict, shortfall_bound, target_of


def certificate_of(
    before: BeforeStage2 | None, scores: Scores, split: Partition, device: torch.device, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the forgetting bound with everything that it was computed from, or the reason why there is no bound."""
    if scores.observed is None:
        return {"bound": None, "words": "no bound: the model was not run on the forget samples.", "conditions": {}}
    now_losses = scores.observed("train", "forget")
    target = target_of(config)
    if target is not None:
        return _shortfall(now_losses, target)
    if before is None:
        words = "no bound: only the methods two-stage and unweave have one, the latter with cross-entropy."
        return {"bound": None, "words": words, "conditions": {}}
    then = predict(before.model, split.samples, split.rows("forget"), device=device, precision=config["precision"])
    bound = forgetting_bound(
        then.losses, now_losses.losses, alpha=before.alpha, classes=now_losses.classes, mean_sign=before.mean_sign
    )
    return {
        "bound": bound.value,
        "tighter_bound": bound.tighter,
        "words": str(bound),
        "conditions": {
            "forget_samples": bound.samples,
            "classes": bound.classes,
            "alpha": bound.alpha,
            "mean_sign": before.mean_sign,
            "smallest_forget_loss_before_stage_2": bound.smallest_loss,
            "must_be_above": math.log(bound.classes),
            "change_of_the_protected_objective": bound.change,
            "squared_wasserstein": bound.wasserstein,
        },
    }


def _shortfall(found: Predictions, target: float) -> dict[str, Any]:
    """Return the bound of the method unweave."""
    bound, shortfall = shortfall_bound(found.losses, target=target, classes=found.classes)
    return {
        "bound": bound,
        "words": f"at most {bound:.1%} of the {len(found)} forget samples are predicted right (measured losses; "
        f"shortfall {shortfall:.3g} below C = {target:g})",
        "conditions": {
            "forget_samples": len(found),
            "classes": found.classes,
            "target": target,
            "must_be_above": math.log(found.classes),
            "shortfall": shortfall,
        },
    }
