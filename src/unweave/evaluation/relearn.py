"""Relearning: fine-tune a copy for a few steps and measure how fast forget accuracy returns.

Hidden knowledge returns in a few steps. A model that never had it must learn it. There are two tests: fine-tuning on a
few forget samples, measured on the others, and fine-tuning on adjacent data only, measured on all forget samples. An
honest user might do the second without any intent to undo the forgetting.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from unweave.data import Partition
from unweave.engine import Logged, OptimizerName, Phase, Workbench, make_optimizer, run_phases
from unweave.errors import UsageError
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import NOT_TOLD, predict
from unweave.runtime import pick_device
from unweave.settings import Settings, setting

Source = Literal["forget", "adjacent"]
SOURCES: dict[Source, str] = {"forget": "", "adjacent": "_adjacent"}
SURE = -math.log(0.9)  # the loss of a label with probability 90%


@dataclass(frozen=True, kw_only=True)
class RelearnSettings(Settings):
    """Settings of relearning. The step size is fixed and small, so steps are comparable between models.

    Args:
        samples: Forget samples to relearn from, at most half of them.
        steps: Steps after which to give up.
        batch_size: The most samples per step.
        optimizer: The optimiser.
        learning_rate: Step size.
        momentum: Momentum of SGD.
        returned: The share of the original's forget accuracy that counts as a return.

    Raises:
        UsageError: A value is out of range.

    >>> RelearnSettings(steps=20).samples
    16
    """

    samples: int = setting(16, at_least=1, help="Forget samples to relearn from, half of them at most.")
    steps: int = setting(50, at_least=1, help="Steps after which to give up.")
    batch_size: int = setting(64, at_least=1, help="Samples per step, where there are more.")
    optimizer: OptimizerName = setting("sgd", help="Optimiser.")
    learning_rate: float = setting(1e-3, above=0, help="Step size.")
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of SGD.")
    returned: float = setting(0.9, above=0, at_most=1, help="Share of the original's forget accuracy that is a return.")


@dataclass(frozen=True)
class Relearning:
    """The forget set's accuracy and mean loss after 0, 1, 2, … steps of fine-tuning."""

    accuracy: tuple[float, ...]
    loss: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain lists."""
        return {"accuracy": list(self.accuracy), "loss": list(self.loss)}

    def steps_to_accuracy(self, goal: float) -> int | None:
        """Return the number of steps until the accuracy reached the goal, or None.

        >>> Relearning(accuracy=(0.0, 0.4, 0.9), loss=(9.0, 2.0, 0.3)).steps_to_accuracy(0.5)
        2
        """
        return next((step for step, value in enumerate(self.accuracy) if value >= goal), None)

    def steps_to_loss(self, goal: float) -> int | None:
        """Return the number of steps until the loss reached the goal, or None."""
        return next((step for step, value in enumerate(self.loss) if value <= goal), None)


class Relearn(Phase):
    """Descend on the shown data. Measure the watched data before every step."""

    name = "relearn"
    keeps = ("optimizer",)

    def __init__(self, settings: RelearnSettings) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Show the split's adjacent set and watch its forget set. Batch statistics stay frozen."""
        super().prepare(bench)
        s = self.settings
        self.shown = bench.batches("adjacent", size=s.batch_size)
        self.watched = bench.batches("forget", size=512)
        self.steps = s.steps + 1
        self.optimizer = make_optimizer(
            s.optimizer, bench.parameters, learning_rate=s.learning_rate, momentum=s.momentum
        )
        bench.mode("eval")

    def step(self, number: int) -> Logged:
        """Measure, then take one step."""
        bench = self.bench
        right, losses = torch.zeros((), device=bench.device), torch.zeros((), device=bench.device)
        with torch.no_grad():
            for batch in self.watched.in_order():
                outputs, labels = bench.logits(batch), bench.labels(batch)
                recognised = bench.task.recognised(outputs, labels)
                if recognised is None:
                    raise UsageError(NOT_TOLD)
                right = right + recognised.sum()
                losses = losses + bench.task.losses(outputs, labels).sum()
        count = len(self.watched.rows)
        bench.descend(self.optimizer, bench.gradient([bench.losses(self.shown[number]).mean()]))
        return {"accuracy": right / count, "loss": losses / count}


def relearn(
    model: nn.Module,
    split: Partition,
    *,
    source: Source = "forget",
    settings: RelearnSettings | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Relearning:
    """Fine-tune a copy of the model and return the curves of the forget set. The model itself is not changed."""
    settings = settings or RelearnSettings()
    where = pick_device(device)
    bench = Workbench(copy.deepcopy(model).to(where), shown_and_watched(split, source, settings, seed), device=where)
    history = run_phases(bench, [Relearn(settings)])
    return Relearning(tuple(history.column("accuracy")), tuple(history.column("loss")))


def shown_and_watched(split: Partition, source: Source, settings: RelearnSettings, seed: int) -> Partition:
    """Return a split with the data to fine-tune on as adjacent set and the data to watch as forget set."""
    forget = split.forget
    if source == "adjacent":
        return Partition(split.samples, forget, split.adjacent, [], allow_empty=True)
    few = min(settings.samples, len(forget) // 2)
    shown = np.random.default_rng(seed).permutation(forget)[:few]
    return Partition(split.samples, np.setdiff1d(forget, shown), shown, [], allow_empty=True)


def no_relearning(note: str) -> list[Metric]:
    """Return the relearning metrics as absent, with a reason."""
    return [metric for suffix in SOURCES.values() for metric in _absent(suffix, note)]


def _absent(suffix: str, note: str) -> list[Metric]:
    names = ("relearn_steps", "relearn_loss_steps", "relearn_relative")
    return [_metric(f"{name}{suffix}", None, note) for name in names]


def relearn_metrics(
    model: nn.Module,
    references: Sequence[nn.Module],
    original: nn.Module | None,
    train: Partition,
    *,
    settings: RelearnSettings,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> tuple[list[Metric], dict[str, Any]]:
    """Return, for both sources, the steps until the forget set returns, their ratio to retraining, and the curves."""
    found: list[Metric] = []
    drawn: dict[str, Any] = {}
    for source, suffix in SOURCES.items():
        if note := _obstacle(train, source):
            found += _absent(suffix, note)
            continue
        curves = [
            relearn(each, train, source=source, settings=settings, seed=seed, device=device)
            for each in (model, *references)
        ]
        drawn[source] = {"model": curves[0].to_dict(), "retrained": [curve.to_dict() for curve in curves[1:]]}
        accuracy, loss = _goals(original, train, settings, device)
        by_accuracy = [curve.steps_to_accuracy(accuracy) for curve in curves]
        by_loss = [curve.steps_to_loss(loss) for curve in curves]
        found.append(_steps(f"relearn_steps{suffix}", by_accuracy, settings.steps, f"accuracy {accuracy:.1%}"))
        found.append(_steps(f"relearn_loss_steps{suffix}", by_loss, settings.steps, f"loss {loss:.3f}"))
        found.append(_relative(f"relearn_relative{suffix}", by_accuracy, settings.steps))
    return found, drawn


def _goals(
    original: nn.Module | None, train: Partition, settings: RelearnSettings, device: str | torch.device | None
) -> tuple[float, float]:
    """The accuracy and loss that count as a return: near the original's or, without an original, near perfect."""
    if original is None:
        return settings.returned, SURE
    before = predict(original, train.samples, train.rows("forget"), device=device)
    return settings.returned * float(before.correct.double().mean()), max(SURE, float(before.losses.mean()))


def _obstacle(train: Partition, source: Source) -> str:
    if len(train.forget) < 2:
        return f"Relearning needs at least two forget samples, but there are {len(train.forget)}."
    if source == "adjacent" and len(train.adjacent) == 0:
        return "There is no adjacent data to relearn from."
    return ""


def _steps(name: str, steps: Sequence[int | None], limit: int, goal: str) -> Metric:
    first, *rest = steps
    note = f"Steps until forget {goal}." if first is not None else f"Forget {goal} was not reached in {limit} steps."
    metric = _metric(name, limit if first is None else first, note)
    if first is None:
        metric = replace(metric, low=float(limit))  # no upper end: it takes at least this many steps
    reference = [limit if other is None else other for other in rest]
    return metric.beside(reference=float(np.mean(reference)) if reference else None, before=None)


def _relative(name: str, steps: Sequence[int | None], limit: int) -> Metric:
    """Steps divided by retraining's: below 1, relearning is faster than learning. Both count from 1, to allow 0."""
    first, *rest = steps
    if not rest:
        return _metric(name, None, "No retrained reference was given.")
    if first is None and None in rest:
        return _metric(name, None, f"Neither the model nor a retrained one reached the goal in {limit} steps.")
    note = "An upper bound: a retrained model did not reach the goal." if None in rest else ""
    note = "A lower bound: the model did not reach the goal." if first is None else note
    counted = [limit if other is None else other for other in steps]
    metric = _metric(name, (1 + counted[0]) / (1 + float(np.mean(counted[1:]))), note)
    return metric.beside(reference=1.0, before=None)


def _metric(name: str, value: float | None, note: str) -> Metric:
    return Metric(metric=name, value=value, better="reference", split="train", subset="forget", note=note)
