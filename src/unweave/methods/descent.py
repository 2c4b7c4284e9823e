"""Plain minibatch descent on some of the data: training, retraining, fine-tuning, gradient ascent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from unweave.engine import Logged, Phase, Workbench
from unweave.settings import Settings, setting

OptimizerName = Literal["sgd", "adam", "adamw"]


@dataclass(frozen=True, kw_only=True)
class DescentSettings(Settings):
    """How to descend: optimiser, step size, epochs, batches."""

    optimizer: OptimizerName = setting("adam", help="Optimiser.")
    learning_rate: float = setting(1e-3, above=0, help="Step size.")
    schedule: Literal["constant", "cosine"] = setting("constant", help="Step size over the run; cosine ends at 0.")
    momentum: float = setting(0.0, at_least=0, below=1, help="Momentum of SGD.")
    weight_decay: float = setting(0.0, at_least=0, help="Weight decay of the optimiser.")
    epochs: int = setting(10, at_least=0, help="Passes over the data.")
    batch_size: int = setting(128, at_least=1, help="Samples per step.")
    normalisation: Literal["train", "eval"] = setting(
        "train",
        help="Mode of normalisation layers and dropout: eval freezes statistics and turns dropout off.",
    )


def make_optimizer(
    name: OptimizerName,
    parameters: list[nn.Parameter],
    *,
    learning_rate: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Return the optimiser of that name."""
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(parameters, lr=learning_rate, weight_decay=weight_decay)


class Descent(Phase):
    """Minimise ±(mean loss) over batches of the named subsets."""

    name = "descent"
    keeps = ("optimizer",)

    def __init__(self, settings: DescentSettings, *, subsets: tuple[str, ...], ascend: bool = False) -> None:
        self.settings, self.subsets, self.sign = settings, subsets, -1.0 if ascend else 1.0

    def prepare(self, bench: Workbench) -> None:
        """Make the batches and the optimiser."""
        super().prepare(bench)
        s = self.settings
        self.batches = bench.batches(*self.subsets, size=s.batch_size)
        self.steps = s.epochs * len(self.batches)
        self.optimizer = make_optimizer(
            s.optimizer,
            bench.parameters,
            learning_rate=s.learning_rate,
            momentum=s.momentum,
            weight_decay=s.weight_decay,
        )
        bench.mode(s.normalisation)

    def step(self, number: int) -> Logged:
        """Take one optimiser step on one batch."""
        bench = self.bench
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self._scale(number)
        loss = bench.losses(self.batches[number]).mean()
        bench.descend(self.optimizer, bench.gradient([self.sign * loss]))
        return {"loss": loss.detach()}

    def _scale(self, number: int) -> float:
        if self.settings.schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * number / self.steps))
