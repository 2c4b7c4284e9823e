"""Log the accuracies of the subsets during a run without affecting it."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Tensor

from unweave.data import SUBSETS, Partition
from unweave.engine.callbacks import Callback, Running
from unweave.engine.phase import Logged, Phase
from unweave.errors import UsageError, require_type
from unweave.runtime import own_random_numbers

POINTS = 25


@dataclass(eq=False)
class Watch(Callback):
    """Log accuracies of the three subsets during a run.

    Each time the same samples, evenly chosen from each subset, are evaluated. The model is not changed, and the
    evaluation is not counted in the run's cost.

    Args:
        test: A split of test data to watch as well. None: the run's own, if it has one.
        every: Steps between two evaluations. 0: 25 evaluations in each phase.
        samples: The most samples of each subset.

    Raises:
        UsageError: ``every`` is below 0 or ``samples`` below 1.

    >>> [step for step in range(10) if Watch(every=4).is_due(step, steps=10)]
    [0, 3, 7, 9]
    """

    test: Partition | None = None
    _: KW_ONLY
    every: int = 0
    samples: int = 1000
    _chosen: list[tuple[str, str, Partition, Tensor]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.every < 0 or self.samples < 1:
            raise UsageError(
                f"Watch(every={self.every}, samples={self.samples}): every must be at least 0, samples at least 1."
            )

    def check(self) -> None:
        """Raise a `UsageError` if ``test`` is not a split."""
        require_type("Watch", self.test, (Partition, type(None)), "given a Split of test data")

    def describe(self) -> dict[str, Any]:
        """Return how often and on how many samples it evaluates."""
        return {"watch": {"every": self.every, "samples": self.samples}}

    def is_due(self, step: int, *, steps: int) -> bool:
        """Return whether to evaluate after a step. It depends on the step only, so a resumed run evaluates the same."""
        every = self.every or math.ceil(steps / POINTS)
        return step == 0 or step == steps - 1 or step % every == every - 1

    def begin(self, running: Running) -> None:
        """Choose the samples."""
        parts = [("", running.split), ("test_", self.test or running.test)]
        self._chosen = [
            (mark, subset, split, evenly(split.rows(subset), self.samples))
            for mark, split in parts
            if split is not None
            for subset in SUBSETS
            if len(split[subset])
        ]

    def step(self, phase: Phase, number: int) -> Logged:
        """Return the accuracies and the forget loss, if an evaluation is due."""
        if not self.is_due(number, steps=phase.steps):
            return {}
        bench = phase.bench
        with bench.meter.paused(), own_random_numbers(bench.device):
            return self._look(phase)

    def _look(self, phase: Phase) -> Logged:
        """Return accuracies by name: ``forget_accuracy``, …, ``test_remote_accuracy``; and the mean forget loss."""
        bench, found = phase.bench, {}
        for mark, subset, split, rows in self._chosen:
            outputs, labels = bench.forward.rows(bench.task.tried_outputs, bench.model, split.samples, rows)
            labels = bench.task.labels(labels)
            if (recognised := bench.task.recognised(outputs, labels)) is not None:
                found[f"{mark}{subset}_accuracy"] = int(recognised.sum()) / len(recognised)
            if (mark, subset) == ("", "forget"):
                found["watched_forget_loss"] = float(bench.task.losses(outputs, labels).double().mean())
        return found


def evenly(rows: Tensor, count: int) -> Tensor:
    """Return at most ``count`` of the rows, evenly chosen."""
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count).round().long()]
