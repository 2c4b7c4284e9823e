"""The data that tuning judges on: a part of the training data, held out. The test data is never touched."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unweave.api import Split
from unweave.data import SUBSETS
from unweave.errors import UsageError
from unweave.lab.benchmarks import Task

HELD_OUT = 0.2  # of each subset


def carve(task: Task, *, seed: int) -> Task:
    """Return a task of the training data alone: four fifths of each subset to train on, a fifth to judge on."""
    generator = np.random.default_rng(seed)
    held: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    for subset in SUBSETS:
        rows = generator.permutation(task.train[subset])
        if len(rows) < 2:
            raise UsageError(f"Tuning holds out some {subset} samples, but the training data has {len(rows)}.")
        count = max(1, round(HELD_OUT * len(rows)))
        held[subset], kept[subset] = rows[:count], rows[count:]
    samples = task.train.samples
    return dataclasses.replace(task, train=Split(samples, **kept), test=Split(samples, **held))
