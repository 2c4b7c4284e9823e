"""Does it come back? Fine-tune a copy for a few steps and watch the forget set return.

What was merely hidden returns in a few steps; what was never learned must be learned. Two ways to try: on a few of the
forget samples (watching the others), and on adjacent data only (watching them all), which an honest user might do
without any wish to bring anything back.
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
SURE = -math.log(0.9)  # the loss of a label that gets 90% of the probability


@dataclass(frozen=True, kw_only=True)
class RelearnSettings(Settings):
    """How to relearn. A fixed small step size, so that steps can be compared between models."""

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
        """Return after how many steps the accuracy was back, or None.

        >>> Relearning(accuracy=(0.0, 0.4, 0.9), loss=(9.0, 2.0, 0.3)).steps_to_accuracy(0.5)
        2
        """
        return next((step for step, value in enumerate(self.accuracy) if value >= goal), None)

    def steps_to_loss(self, goal: float) -> int | None:
        """Return after how many steps the loss was back, or None."""
        return next((step for step, value in enumerate(self.loss) if value <= goal), None)


class Relearn(Phase):
    """Descend on the shown data; log the watched data before every step."""

    name = "relearn"
    keeps = ("optimizer",)

    def __init__(self, settings: RelearnSettings) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """The split's adjacent set is what is shown, its forget set what is watched. Statistics stay frozen."""
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
    """Fine-tune a copy of the model and return how the forget set comes back. The model given is not changed."""
    settings = settings or RelearnSettings()
    where = pick_device(device)
    bench = Workbench(copy.deepcopy(model).to(where), shown_and_watched(split, source, settings, seed), device=where)
    history = run_phases(bench, [Relearn(settings)])
    return Relearning(tuple(history.column("accuracy")), tuple(history.column("loss")))


def shown_and_watched(split: Partition, source: Source, settings: RelearnSettings, seed: int) -> Partition:
    """Return what to fine-tune on as the adjacent set, and what to watch as the forget set."""
    forget = split.forget
    if source == "adjacent":
        return Partition(split.samples, forget, split.adjacent, [], allow_empty=True)
    few = min(settings.samples, len(forget) // 2)
    shown = np.random.default_rng(seed).permutation(forget)[:few]
    return Partition(split.samples, np.setdiff1d(forget, shown), shown, [], allow_empty=True)


def no_relearning(note: str) -> list[Metric]:
    """Say why nothing is known about relearning."""
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
    """Return the steps until the forget set is back, and their ratio to retrain's, and the curves, for both sources."""
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
    """The accuracy and the loss that count as a return: near the original's, or near perfect if it is not known."""
    if original is None:
        return settings.returned, SURE
    before = predict(original, train.samples, train.rows("forget"), device=device)
    return settings.returned * float(before.correct.double().mean()), max(SURE, float(before.losses.mean()))


def _obstacle(train: Partition, source: Source) -> str:
    if len(train.forget) < 2:
        return f"Relearning needs two forget samples at least; there are {len(train.forget)}."
    if source == "adjacent" and len(train.adjacent) == 0:
        return "There is no adjacent data to relearn from."
    return ""


def _steps(name: str, steps: Sequence[int | None], limit: int, goal: str) -> Metric:
    first, *rest = steps
    note = f"Steps until forget {goal}." if first is not None else f"Not at forget {goal} in {limit} steps: more."
    metric = _metric(name, limit if first is None else first, note)
    if first is None:
        metric = replace(metric, low=float(limit))  # open upwards: at least so many
    reference = [limit if other is None else other for other in rest]
    return metric.beside(reference=float(np.mean(reference)) if reference else None, before=None)


def _relative(name: str, steps: Sequence[int | None], limit: int) -> Metric:
    """Steps over retrain's: below 1, it comes back faster than it is learned. Counted from 1, so that 0 is no fault."""
    first, *rest = steps
    if not rest:
        return _metric(name, None, "No retrained reference was given.")
    if first is None and None in rest:
        return _metric(name, None, f"Neither the model nor a retrained one was back in {limit} steps.")
    note = "An upper bound: retrain was not back." if None in rest else ""
    note = "A lower bound: the model was not back." if first is None else note
    counted = [limit if other is None else other for other in steps]
    metric = _metric(name, (1 + counted[0]) / (1 + float(np.mean(counted[1:]))), note)
    return metric.beside(reference=1.0, before=None)


def _metric(name: str, value: float | None, note: str) -> Metric:
    return Metric(metric=name, value=value, better="reference", split="train", subset="forget", note=note)
