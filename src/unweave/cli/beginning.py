"""The start of `unweave run`: the original model, the splits, and what earlier runs forgot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api import Result, Split
from unweave.data import Partition
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.record import forgotten_by, forgotten_tests
from unweave.runs import kept_original, load_weights, to_bytes
from unweave.runtime import processes
from unweave.storage import write_whole


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """The original model, the splits, and what earlier runs forgot. ``computing`` holds the device and precision."""

    benchmark: Benchmark
    task: BenchmarkTask
    original: nn.Module
    train: Split
    test: Split | None
    earlier: Sequence[Partition]
    seed: int
    computing: dict[str, Any]

    def initial(self) -> nn.Module:
        """Return the model before training."""
        return self.benchmark.initial(self.seed)

    def briefly(self) -> Result:
        """Train a model without the forget data for a short time, as the reference of the goal retrain."""
        kept = self.train.after(*self.earlier) if self.earlier else self.train
        return self.benchmark.train_briefly(self.original, kept, seed=self.seed, **self.computing)


def begin(
    benchmark: Benchmark,
    out: Path,
    *,
    split: Path | None,
    test_split: Path | None,
    after: Path | None,
    other: bool,
    resume: bool,
    seed: int,
    computing: dict[str, Any],
) -> Beginning:
    """Load the data and the splits. Train the original model, or load the model of the previous run.

    ``other`` tells whether the user chose what to forget, with options or with a file of indices.
    """
    task = benchmark.load()
    train, test = task.train, None if split else task.test
    earlier: list[Partition] = []
    if split:
        train = Split.load(split, task.train.samples)
    if test_split and task.test is None:
        raise UsageError(f"{test_split} splits test data, but {benchmark.name} has none.")
    if test_split and task.test is not None:
        test = Split.load(test_split, task.test.samples)
    if after:
        earlier = [forgotten_by(after, train)]
        test = _test_after(after, train, earlier[0], test, other=other)
        original = load_weights(benchmark.initial(seed), after).eval()
    else:
        original = _original(benchmark, task, out, resume=resume, seed=seed, **computing)
    return Beginning(
        benchmark=benchmark,
        task=task,
        original=original,
        train=train,
        test=test,
        earlier=earlier,
        seed=seed,
        computing=computing,
    )


def _test_after(folder: Path, train: Split, earlier: Partition, test: Split | None, *, other: bool) -> Split | None:
    """Return the test split without what the previous run forgot."""
    if not other and train.forget.tolist() == earlier.forget.tolist():
        raise UsageError(f"{folder} already forgot these samples. Choose what to forget now with --option or --split.")
    before = forgotten_tests(folder, test) if test else None
    return test.after(before) if test and before else test


def _original(
    benchmark: Benchmark, task: BenchmarkTask, out: Path, *, resume: bool, seed: int, **computing: Any
) -> nn.Module:
    """Train the original model and keep it until the run is finished. A resumed run loads the kept one."""
    kept = kept_original(out)
    if resume and kept.exists():
        return load_weights(benchmark.initial(seed), kept).eval()
    original = benchmark.train(task, seed=seed, **computing)
    processes.first(lambda: _keep(original, kept))
    return original


def _keep(model: nn.Module, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, to_bytes(model.state_dict()), private=True)  # it knows what is to be forgotten
