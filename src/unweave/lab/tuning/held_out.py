"""The data that judges trials: a held-out part of the training data. Test data is never used.

A language model does not know facts that it was not trained on, so holding them out leaves nothing to forget. There,
tuning forgets other data than the study does: that of other authors, for example.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unweave.api import Split
from unweave.data import SUBSETS
from unweave.errors import UsageError
from unweave.lab.benchmarks import BenchmarkTask

FORGET = SUBSETS[0]
HELD_OUT = 0.2  # of each subset


def carve(task: BenchmarkTask, *, seed: int, texts: bool = False) -> BenchmarkTask:
    """Divide the training data: four fifths of each subset to train on, one fifth to judge on.

    With ``texts``, all forget data is in both: a fact is not forgotten because another one is. A task that brings other
    data to tune on is not divided.
    """
    if task.development is not None:
        return task.development()
    generator = np.random.default_rng(seed)
    held: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    for subset in SUBSETS:
        rows = generator.permutation(task.train[subset])
        if len(rows) < 2:
            raise UsageError(
                f"Tuning holds out {subset} samples: the training data needs at least 2, but has {len(rows)}."
            )
        count = max(1, round(HELD_OUT * len(rows)))
        held[subset], kept[subset] = rows[:count], rows[count:]
        if texts and subset == FORGET:
            held[subset] = kept[subset] = rows
    samples = task.train.samples
    return dataclasses.replace(task, train=Split(samples, **kept), test=Split(samples, **held))
