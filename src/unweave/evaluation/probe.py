"""Linear probe: can the model's features still separate the forget subclass from its neighbours?

A logistic regression is trained on the frozen input of the model's last layer to tell forget from adjacent training
samples. ``probe_accuracy`` is its balanced accuracy on test samples. A model that merely hides a subclass keeps it
separable. Compare with a retrained model, because good features separate look-alikes anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from unweave.data import Partition
from unweave.errors import UsageError
from unweave.evaluation.attack import FEWEST
from unweave.evaluation.features import features
from unweave.evaluation.metric import Estimate, Metric, share

SIDES = ("forget", "adjacent")
MOST = 5000  # training samples of the probe per side


def probe_accuracy(
    model: nn.Module, train: Partition, test: Partition, *, seed: int = 0, device: str | torch.device | None = None
) -> Estimate:
    """Return the probe's balanced accuracy on test data, forget against adjacent."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known, truth = _features(model, train, np.random.default_rng(seed), device)
    unseen, answers = _features(model, test, None, device)
    probe = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    right = probe.fit(known, truth).predict(unseen) == answers
    return balanced(*((int(right[side].sum()), int(side.sum())) for side in (answers == 1, answers == 0)))


def balanced(*sides: tuple[int, int]) -> Estimate:
    """Return the mean of shares, each given as (correct, total).

    The sides are independent, so the half-widths of their Wilson intervals add in quadrature. The level stays 95%.

    >>> [round(number, 3) for number in balanced((50, 100), (50, 100))]
    [0.5, 0.432, 0.568]
    """
    values, lows, highs = np.array([share(*side) for side in sides], dtype=float).T
    centre, count = float(values.mean()), len(sides)
    return Estimate(centre, centre - math.hypot(*values - lows) / count, centre + math.hypot(*highs - values) / count)


def probe_metrics(
    model: nn.Module,
    references: Sequence[nn.Module],
    original: nn.Module | None,
    *,
    train: Partition,
    test: Partition | None,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> list[Metric]:
    """Return the probe's accuracy after unlearning, with the values of retrained models and the original."""
    note = _obstacle(train, test)
    if note or test is None:
        return [Metric.absent("probe_accuracy", better="reference", note=note, split="test", subset="forget")]
    try:
        found = probe_accuracy(model, train, test, seed=seed, device=device)
        reference = [probe_accuracy(other, train, test, seed=seed, device=device).value for other in references]
        before = None if original is None else probe_accuracy(original, train, test, seed=seed, device=device).value
    except UsageError as error:  # a model without a linear head
        return [Metric.absent("probe_accuracy", better="reference", note=str(error), split="test", subset="forget")]
    metric = Metric.of("probe_accuracy", found, better="reference", split="test", subset="forget")
    return [metric.beside(reference=float(np.mean(reference)) if reference else None, before=before)]


def _obstacle(train: Partition, test: Partition | None) -> str:
    if test is None:
        return "No test data was given, but the probe needs it."
    for part, split in (("training", train), ("test", test)):
        for side in SIDES:
            if len(split[side]) < FEWEST:
                return f"The probe needs {FEWEST} {side} samples, but the {part} data has {len(split[side])}."
    return ""


def _features(
    model: nn.Module, split: Partition, generator: np.random.Generator | None, device: str | torch.device | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found, truth = [], []
    for label, side in ((1, "forget"), (0, "adjacent")):
        rows = split.rows(side)
        if generator is not None and len(rows) > MOST:
            rows = rows[torch.from_numpy(np.sort(generator.permutation(len(rows))[:MOST]))]
        found.append(features(model, split.samples, rows, device=device).numpy())
        truth.append(np.full(len(rows), label))
    return np.concatenate(found), np.concatenate(truth)
