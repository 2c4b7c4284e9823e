"""A benchmark that takes a moment: two dozen samples of three classes, a network of a few weights."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from unweave.api import Split
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.methods import DescentSettings

QUICK = {"stage1_epochs": 2, "stage2_epochs": 3, "stage1_learning_rate": 1e-2, "stage2_adjacent_batch": 4}


def load() -> BenchmarkTask:
    generator = torch.Generator().manual_seed(1)
    centres = 2 * torch.randn(3, 5, generator=generator)
    splits = []
    for _ in range(2):
        labels = torch.arange(60) // 20
        inputs = centres[labels] + torch.randn(60, 5, generator=generator)
        splits.append(Split((inputs, labels), forget=range(8), adjacent=range(8, 20), remote=range(20, 60)))
    return BenchmarkTask(train=splits[0], test=splits[1], label_names=("a", "b", "c"))


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


class Scaled(nn.Module):
    """A model that takes a mapping, as Hugging Face models do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, values):
        return self.layer(torch.tanh(values))


def tiny(**options) -> Benchmark:
    return Benchmark(
        name="tiny",
        load=load,
        model=model,
        recipe=DescentSettings(optimizer="adam", learning_rate=1e-2, epochs=10, batch_size=20),
        settings={name: {"released": QUICK} for name in ("two-stage", "pgd")},
        options=options,
        notes={"data": "made up"},
    )


SOURCE = partial(tiny)
