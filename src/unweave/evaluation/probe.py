"""Linear probe: whether the forget subclass is still told apart from its neighbours inside the model.

A logistic regression learns, on the frozen features that the model's last layer receives, to tell forget from adjacent
training samples; ``probe_accuracy`` is its balanced accuracy on test samples. A model that merely hides a subclass
keeps it separable; what counts is the difference to a retrained model, since look-alikes differ in any good features.
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
MOST = 5000  # training samples of a side that the probe learns from


def probe_accuracy(
    model: nn.Module, train: Partition, test: Partition, *, seed: int = 0, device: str | torch.device | None = None
) -> Estimate:
    """Return the balanced accuracy of forget against adjacent on test data, from features of the model."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known, truth = _features(model, train, np.random.default_rng(seed), device)
    unseen, answers = _features(model, test, None, device)
    probe = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    right = probe.fit(known, truth).predict(unseen) == answers
    return balanced(*((int(right[side].sum()), int(side.sum())) for side in (answers == 1, answers == 0)))


def balanced(*sides: tuple[int, int]) -> Estimate:
    """Return the mean of the shares of some sides, each given as (how many are right, of how many).

    The sides are independent: how far their Wilson intervals reach is added in quadrature, so that 95% stay 95%.

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
    """Return the probe's accuracy after unlearning, beside retrained and before."""
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
        return "No test data was given to try the probe on."
    for part, split in (("training", train), ("test", test)):
        for side in SIDES:
            if len(split[side]) < FEWEST:
                return f"The probe needs {FEWEST} {side} samples; the {part} data has {len(split[side])}."
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
