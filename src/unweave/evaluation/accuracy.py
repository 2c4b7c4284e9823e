"""Accuracy and losses: counts over samples, never means over batches."""

from __future__ import annotations

from typing import Any

import torch

from unweave.evaluation.predictions import Predictions

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def accuracy_and_losses(predictions: Predictions) -> dict[str, Any]:
    """Return sample count, accuracy, mean loss and quantiles of the loss; values are None without samples.

    >>> some = Predictions(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> accuracy_and_losses(some)["accuracy"]
    0.5
    """
    if len(predictions) == 0:
        return {"samples": 0, "accuracy": None, "loss": None, "loss_quantiles": None}
    losses = predictions.losses.double()
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {
        "samples": len(predictions),
        "accuracy": int(predictions.correct.sum()) / len(predictions),
        "loss": float(losses.mean()),
        "loss_quantiles": {
            f"{level:g}": float(value) for level, value in zip(QUANTILES, losses.quantile(levels), strict=True)
        },
    }
