"""Watching a run: accuracies of the three subsets while a method works, without touching what it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unweave.data import SUBSETS, Partition
from unweave.engine import Logged, Phase
from unweave.errors import UsageError
from unweave.evaluation.predictions import predict
from unweave.runtime import Precision, own_random_numbers

POINTS = 25


@dataclass(frozen=True, kw_only=True)
class Watch:
    """How closely to look: after every so many steps of a phase (0: 25 times in a phase), at so many samples a subset.

    >>> [step for step in range(10) if Watch(every=4).is_due(step, steps=10)]
    [0, 3, 7, 9]
    """

    every: int = 0
    samples: int = 1000

    def __post_init__(self) -> None:
        if self.every < 0 or self.samples < 1:
            raise UsageError(
                f"Watch(every={self.every}, samples={self.samples}): every must be at least 0, samples at least 1."
            )

    def is_due(self, step: int, *, steps: int) -> bool:
        """Tell whether to look after a step. It depends on nothing else, so that a resumed run looks at the same."""
        every = self.every or math.ceil(steps / POINTS)
        return step == 0 or step == steps - 1 or step % every == every - 1


class Watcher:
    """Looks at a model after the steps of its phases.

    The same samples are looked at each time, evenly chosen from each subset. Nothing random is drawn, the model's
    modes are restored, and nothing is added to the cost.
    """

    def __init__(self, watch: Watch, train: Partition, test: Partition | None) -> None:
        self.watch = watch
        self.parts = [
            (mark, subset, split, _evenly(split.rows(subset), watch.samples))
            for mark, split in (("", train), ("test_", test))
            if split is not None
            for subset in SUBSETS
            if len(split[subset])
        ]

    def __call__(self, phase: Phase, step: int) -> Logged:
        """Return the accuracies and the forget loss, if it is time to look."""
        if not self.watch.is_due(step, steps=phase.steps):
            return {}
        bench = phase.bench
        with bench.meter.paused(), own_random_numbers(bench.device):
            return self.look(bench.model, bench.device, bench.precision)

    def look(self, model: nn.Module, device: torch.device, precision: Precision) -> Logged:
        """Return accuracies by name: ``forget_accuracy``, …, ``test_remote_accuracy``; and the mean forget loss."""
        found = {}
        for mark, subset, split, rows in self.parts:
            predictions = predict(model, split.samples, rows, device=device, precision=precision)
            found[f"{mark}{subset}_accuracy"] = int(predictions.correct.sum()) / len(predictions)
            if (mark, subset) == ("", "forget"):
                found["watched_forget_loss"] = float(predictions.losses.double().mean())
        return found


def _evenly(rows: Tensor, count: int) -> Tensor:
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count).round().long()]
