"""Plain minibatch descent on part of the data. Training, retraining, fine-tuning and ascent share it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from unweave.engine import Logged, OptimizerName, Phase, Workbench, make_optimizer
from unweave.settings import Around, Multiples, Settings, setting

WARM_UP = 0.1  # of the run


@dataclass(frozen=True, kw_only=True)
class DescentSettings(Settings):
    """How to descend: optimiser, step size, epochs, batches."""

    optimizer: OptimizerName = setting("adam", help="Optimiser.")
    learning_rate: float = setting(1e-3, above=0, search=Around(30), help="Step size.")
    schedule: Literal["constant", "cosine", "warm-up", "linear"] = setting(
        "constant",
        help="Step size over the run: cosine ends at 0; warm-up rises for a tenth of it first; linear rises from 0 for "
        "one epoch and falls to 0.",
    )
    momentum: float = setting(0.0, at_least=0, below=1, help="Momentum of SGD.")
    weight_decay: float = setting(0.0, at_least=0, help="Weight decay of the optimiser.")
    epochs: int = setting(10, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the data.")
    batch_size: int = setting(128, at_least=1, help="Samples per step.")
    normalisation: Literal["train", "eval"] = setting(
        "train", help="Mode of normalisation layers and dropout: eval freezes statistics and turns dropout off."
    )


def optimizer_for(settings: DescentSettings, bench: Workbench) -> torch.optim.Optimizer:
    """Return the optimiser that the settings describe, over the trainable parameters."""
    return make_optimizer(
        settings.optimizer,
        bench.parameters,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: DescentSettings, *, done: float) -> None:
    """Set the step size for the share of the run that is done. Nothing else enters, so a resumed run is exact."""
    scale = 1.0
    if settings.schedule == "linear":
        start = 1 / max(1, settings.epochs)
        scale = done / start if done < start else (1 - done) / max(1 - start, 1e-9)
    elif settings.schedule != "constant":
        start = WARM_UP if settings.schedule == "warm-up" else 0.0
        rest = (done - start) / (1 - start)
        scale = (done + 1e-3) / (start + 1e-3) if done < start else 0.5 * (1 + math.cos(math.pi * rest))
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * scale


class Descent(Phase):
    """Minimise ±(mean loss) over batches of the named subsets."""

    name = "descent"
    keeps = ("optimizer",)
    settings: DescentSettings

    def __init__(self, settings: DescentSettings, *, subsets: tuple[str, ...], ascend: bool = False) -> None:
        self.settings, self.subsets, self.sign = settings, subsets, -1.0 if ascend else 1.0

    def prepare(self, bench: Workbench) -> None:
        """Make the batches and the optimiser."""
        super().prepare(bench)
        self.batches = bench.batches(*self.subsets, size=self.settings.batch_size)
        self.steps = self.settings.epochs * len(self.batches)
        self.optimizer = optimizer_for(self.settings, bench)
        bench.mode(self.settings.normalisation)

    def step(self, number: int) -> Logged:
        """Take one optimiser step on one batch."""
        bench = self.bench
        set_learning_rate(self.optimizer, self.settings, done=number / self.steps)
        loss = bench.losses(self.batches[number]).mean()
        bench.descend(self.optimizer, bench.gradient([self.sign * loss]))
        return {"loss": loss.detach()}
