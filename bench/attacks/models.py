"""Train, unlearn and retrain the models of the attacks, and keep what they say of every sample.

- ``shadow K``: an original that saw a random half of forget and adjacent data (of training and test data together), and
  forgot its half of the forget data, by every method.
- ``whole K``: an original of the whole training data that forgot the forget set, by every method.
- ``retrained K``: a model that never saw the forget set.

``FOLDER/originals`` keeps the weights, so that methods can be added, and ``FOLDER/margins`` the margins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from unweave import Compute, Progress, UsageError, unlearn
from unweave.data import RETAINED
from unweave.engine import derive_seed
from unweave.evaluation import balanced_halves, predict
from unweave.lab.audit import Pool
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.methods import make_method
from unweave.runs import load_weights
from unweave.storage import write_whole

REMOTE = 2000  # remote training samples whose margins are kept
FEWEST_SHADOWS = 6  # each is attacked with the others, of which two must have seen a sample, and two not
ORIGINAL = "original"
KINDS = ("shadow", "whole", "retrained")


@dataclass(frozen=True)
class Contender:
    """A method with a profile and settings, as the command line names it: ``METHOD[:PROFILE] [KEY=VALUE …]``.

    >>> Contender.parse("ft:tuned epochs=3")
    Contender(label='ft tuned epochs=3', method='ft', profile='tuned', settings=(('epochs', '3'),))
    """

    label: str
    method: str
    profile: str | None
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Contender:
        """Read one from the command line."""
        name, *more = text.split()
        method, _, profile = name.partition(":")
        pairs = tuple(word.partition("=")[::2] for word in more)
        if not all(key and value for key, value in pairs):
            raise UsageError(f"--method {text!r} must be METHOD[:PROFILE], then KEY=VALUE for settings.")
        return cls(" ".join(filter(None, (method, profile, *more))), method, profile or None, pairs)

    @property
    def file(self) -> str:
        """The label as a part of a file's name."""
        return self.label.replace(" ", "+")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which models are needed, and where they are kept."""

    benchmark: Benchmark
    task: BenchmarkTask
    contenders: Sequence[Contender]
    shadows: int
    retrained: int
    folder: Path
    seed: int = 0
    device: str | None = None

    def jobs(self, share: tuple[int, int] = (0, 1)) -> list[tuple[str, int]]:
        """Return the models of a share: every n-th, so that shares have equal work."""
        every = [("shadow", number) for number in range(self.shadows)]
        every += [("whole", number) for number in range(self.retrained)]
        every += [("retrained", number) for number in range(2 * self.retrained)]
        if self.shadows < FEWEST_SHADOWS:
            raise UsageError(f"--shadows {self.shadows} are too few: {FEWEST_SHADOWS} are needed, and 64 to rely on.")
        part, parts = share
        return every[part::parts]

    def margins(self, kind: str, number: int, label: str) -> Path:
        """Return the file with the margins of a model."""
        return self.folder / "margins" / f"{kind}-{number:03d}.{label}.safetensors"


def work(plan: Plan, share: tuple[int, int] = (0, 1)) -> Iterator[str]:
    """Make the models of a share that are not there yet, and yield a line for each."""
    pool = Pool(plan.task.train, plan.task.test)
    halves = {
        subset: balanced_halves(len(rows), plan.shadows, seed=derive_seed(plan.seed, "halves", subset))
        for subset, rows in pool.rows.items()
    }
    for kind, number in plan.jobs(share):
        if kind == "retrained":
            yield from _retrain(plan, pool, number)
            continue
        seen = {subset: marks[number] for subset, marks in halves.items()} if kind == "shadow" else {}
        task = replace(plan.task, train=pool.split(seen)) if seen else plan.task
        yield from _unlearn_all(plan, pool, task, kind, number, seen)


def _unlearn_all(
    plan: Plan, pool: Pool, task: BenchmarkTask, kind: str, number: int, seen: dict[str, np.ndarray]
) -> Iterator[str]:
    """Train one original, and let every contender unlearn from it."""
    seed = derive_seed(plan.seed, kind, number) % 2**31
    files = {one.file: plan.margins(kind, number, one.file) for one in plan.contenders}
    files[ORIGINAL] = plan.margins(kind, number, ORIGINAL)
    if all(file.exists() for file in files.values()):
        return
    original = _original(plan, task, kind, number, seed)
    marks = {f"{subset}.seen": torch.from_numpy(mark) for subset, mark in seen.items()}
    if not files[ORIGINAL].exists():
        _keep(plan, pool, original, files[ORIGINAL], marks)
    for one in plan.contenders:
        if not files[one.file].exists():
            _keep(plan, pool, _unlearned(plan, task, original, one, seed), files[one.file], marks)
            yield f"{kind} {number}: {one.label}"


def _original(plan: Plan, task: BenchmarkTask, kind: str, number: int, seed: int) -> nn.Module:
    file = plan.folder / "originals" / f"{kind}-{number:03d}.safetensors"
    if file.exists():
        return load_weights(plan.benchmark.initial(seed), file)
    model = plan.benchmark.train(task, seed=seed, device=plan.device, progress=False)
    write_whole(file, safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()}))
    return model


def _unlearned(plan: Plan, task: BenchmarkTask, original: nn.Module, one: Contender, seed: int) -> nn.Module:
    benchmark, method = plan.benchmark, plan.benchmark.method(one.method)
    settings = method.configure(
        benchmark.settings_for(method, one.profile), dict(one.settings), profile=one.profile
    ).to_dict()
    chosen = make_method(one.method, settings).with_given(
        initial=lambda: benchmark.initial(seed),
        reference=lambda: benchmark.train_briefly(original, task.train, seed=seed, device=plan.device),
        **benchmark.given(task),
    )
    how = {"compute": Compute(plan.device), "guard": None, "callbacks": [Progress(show=False)]}
    return unlearn(original, task.train, chosen, seed=seed, **how).model


def _retrain(plan: Plan, pool: Pool, number: int) -> Iterator[str]:
    file = plan.margins("retrained", number, "retrain")
    if not file.exists():
        seed = derive_seed(plan.seed, "retrained", number) % 2**31
        model = plan.benchmark.train(plan.task, seed=seed, subsets=RETAINED, device=plan.device, progress=False)
        _keep(plan, pool, model, file, {})
        yield f"retrained {number}"


def _keep(plan: Plan, pool: Pool, model: nn.Module, file: Path, marks: dict[str, Tensor]) -> None:
    """Write the margins of a model on the pool and on some remote training data."""
    look = {name: values for name, values in pool.look(model, plan.device).items() if name.endswith(".margins")}
    remote = torch.from_numpy(np.asarray(pool.remote)[:REMOTE])
    look["remote.margins"] = predict(model, pool.samples, remote, device=plan.device).margins
    content = {name: values.float().contiguous() for name, values in look.items()} | marks
    write_whole(file, safetensors.torch.save(content))
