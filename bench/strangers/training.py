"""Training a model the plain way, with torch alone: the tasks must not depend on what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.strangers.data import Part

CHUNK = 1_000  # samples of a forward pass without gradients


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a user might train: one of the usual optimisers, at a constant step size or along a cosine."""

    optimizer: Literal["sgd", "adam", "adamw"]
    learning_rate: float
    epochs: int
    batch_size: int = 64
    momentum: float = 0.9
    weight_decay: float = 0.0
    cosine: bool = False

    def make(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of the weights that are trained."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if self.optimizer == "sgd":
            return torch.optim.SGD(weights, self.learning_rate, self.momentum, weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return kind(weights, self.learning_rate, weight_decay=self.weight_decay)


def initial(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a model with the initial weights of a seed; the caller's random numbers do not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def train(model: nn.Module, part: Part, recipe: Recipe, *, seed: int, rows: np.ndarray[Any, Any] | None = None) -> int:
    """Train a model on some rows (None: all), and return how many sample gradients that took."""
    chosen = torch.arange(len(part.labels)) if rows is None else torch.from_numpy(rows)
    optimizer = recipe.make(model)
    steps = recipe.epochs * -(-len(chosen) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if recipe.cosine else None
    draw = torch.Generator().manual_seed(seed)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for dropout
        for _ in range(recipe.epochs):
            for batch in chosen[torch.randperm(len(chosen), generator=draw)].split(recipe.batch_size):
                optimizer.zero_grad()
                functional.cross_entropy(model(part.inputs[batch]), part.labels[batch]).backward()
                optimizer.step()
                if schedule:
                    schedule.step()
    model.eval()
    return recipe.epochs * len(chosen)


def look(model: nn.Module, part: Part) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which samples a model recognises, and their losses."""
    was = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(some) for some in part.inputs.split(CHUNK)])
    model.train(was)
    losses = functional.cross_entropy(outputs, part.labels, reduction="none")
    return outputs.argmax(1) == part.labels, losses
