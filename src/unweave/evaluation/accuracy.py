"""Accuracy and losses, computed over samples, never as means of batch means."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unweave.evaluation.metric import Better, Metric, mean, share
from unweave.evaluation.predictions import NOT_TOLD, Observed, Predictions, array

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS = 20


def accuracy_and_losses(predictions: Predictions) -> dict[str, Any]:
    """Return sample count, accuracy, mean loss, quantiles and histogram of the loss, or None if there are no samples.

    >>> some = Predictions(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> accuracy_and_losses(some)["accuracy"]
    0.5
    """
    if len(predictions) == 0:
        return {"samples": 0, "accuracy": None, "loss": None, "loss_quantiles": None}
    losses = predictions.losses.double()
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    try:
        counts, edges = np.histogram(losses.numpy(), bins=BINS)
    except ValueError:  # losses so large and so similar that bin edges coincide in floating point
        counts, edges = np.array([len(losses)]), np.array([float(losses.min()), float(losses.max())])
    return {
        "samples": len(predictions),
        "accuracy": None if predictions.recognised is None else int(predictions.correct.sum()) / len(predictions),
        "loss": float(losses.mean()),
        "loss_quantiles": {
            f"{level:g}": float(value) for level, value in zip(QUANTILES, losses.quantile(levels), strict=True)
        },
        "loss_histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def accuracy_metrics(observed: Observed) -> list[Metric]:
    """Return accuracy and mean loss of every subset and every whole part, with intervals and directions."""
    found = []
    for part, subsets in observed.parts.items():
        for subset, predictions in [*subsets.items(), ("", observed(part))]:
            gone = subset in ("forget", "forgotten")
            up: Better = "lower" if gone else "higher"
            down: Better = "higher" if gone else "lower"
            if len(predictions) == 0:
                note = f"The {part} data has no {subset} samples."
                found.append(Metric.absent("accuracy", better=up, note=note, split=part, subset=subset))
                found.append(Metric.absent("loss", better=down, note=note, split=part, subset=subset))
                continue
            loss = mean(array(predictions.losses))
            if predictions.recognised is None:
                found.append(Metric.absent("accuracy", better=up, note=NOT_TOLD, split=part, subset=subset))
            else:
                right = share(int(predictions.correct.sum()), len(predictions))
                found.append(Metric.of("accuracy", right, better=up, split=part, subset=subset))
            found.append(Metric.of("loss", loss, better=down, split=part, subset=subset))
    return found
