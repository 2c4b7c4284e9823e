"""The trained models of a study: each trained once, by one process, and shared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from rich.progress import Progress as Bar
from torch import nn

from unweave.api import load_weights, remove_folder
from unweave.data import SUBSETS
from unweave.engine import CheckpointFolder, Computing
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark, Task
from unweave.lab.study.store import Store
from unweave.runs import UNFINISHED
from unweave.storage import Lock, write_whole


def take_originals(benchmark: Benchmark, store: Store, source: Path, seeds: Iterable[int]) -> dict[str, Any] | None:
    """Copy the originals of these seeds from another study, and return where they come from.

    The other study must be of the same benchmark; its options may differ in what to forget, as long as that changes
    nothing about training. Seeds that it has not are left to be trained, and an original of the study's own stays: if
    all are, nothing comes from elsewhere.
    """
    other = Store.open(source)
    about = other.about()
    if not benchmark.trains_like(about["benchmark"], about.get("options", {})):
        raise UsageError(
            f"{source} has originals of {other.title}, which are trained otherwise than those of {benchmark.title}. "
            "Give a study whose options differ in what to forget only, or none."
        )
    names = [f"original.seed-{seed}" for seed in sorted(set(seeds))]
    names = [name for name in names if (other.models / f"{name}.safetensors").exists()]
    if not names:
        raise UsageError(f"{source} has no original of the seeds that are asked for. Was it run with --keep-models?")
    with Lock(store.locks / "originals.lock", wait=True):  # another start may be at the same
        taken = {name.rpartition("-")[2]: _taken(name, store, other) for name in names}
    hashes = {seed: found for seed, found in taken.items() if found}
    return {"study": other.title, "hashes": hashes, "provenance": other.provenance()[:1]} if hashes else None


def _taken(name: str, store: Store, other: Store) -> str | None:
    """Copy an original, unless there is one or it is being trained; return its hash if it is the other study's."""
    file = f"{name}.safetensors"
    data, own = (other.models / file).read_bytes(), store.models / file
    with Lock.claim(store.locks / f"model.{name}.lock") as claim:
        if claim is not None and not own.exists():
            write_whole(own, data)
        same = claim is not None and own.read_bytes() == data
    return hashlib.blake2b(data, digest_size=16).hexdigest() if same else None


class NotYet(Exception):  # noqa: N818
    """Another process is training the model: there is something else to do until then."""


class Home(Protocol):
    """A folder that keeps trained models for several processes."""

    models: Path
    locks: Path

    def note_time(self, name: str, seconds: float) -> None:
        """Keep how long something took."""


class Shown(Protocol):
    """What shows that a model is being trained."""

    bar: Bar

    def train(self, seed: int) -> None:
        """Show that training begins."""


class Originals:
    """Gives the original of a seed, training it if nobody has yet. Training that was stopped goes on.

    With other ``subsets`` they are models of another ``kind``, which is the first word of their files' names.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        store: Home,
        task: Callable[[], Task],
        progress: Shown,
        *,
        computing: Computing,
        stop: Callable[[], bool],
        kind: str = "original",
        subsets: tuple[str, ...] = SUBSETS,
    ) -> None:
        self.benchmark, self.store, self.task, self.progress = benchmark, store, task, progress
        self.computing, self.stop, self.kind, self.subsets = computing, stop, kind, subsets
        self._known: dict[int, nn.Module] = {}

    def __call__(self, seed: int) -> nn.Module:
        """Return the original of a seed. Raises `NotYet` where another process is training it."""
        if seed not in self._known:
            name = f"{self.kind}.seed-{seed}"
            path = self.store.models / f"{name}.safetensors"
            if not path.exists():
                with Lock.claim(self.store.locks / f"model.{name}.lock") as claim:
                    if claim is None:
                        raise NotYet
                    if not path.exists():
                        self._train(name, seed)
            with torch.random.fork_rng(devices=[]):
                self._known[seed] = load_weights(self.benchmark.initial(seed), path).eval()
        return self._known[seed]

    def _train(self, name: str, seed: int) -> None:
        self.progress.train(seed)
        begun, folder = time.monotonic(), self.store.models / (name + UNFINISHED)
        model = self.benchmark.train(
            self.task(),
            seed=seed,
            subsets=self.subsets,
            **self.computing.working,
            progress=self.progress.bar,
            checkpoints=CheckpointFolder(folder),
            stop=self.stop,
        )
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()}
        write_whole(self.store.models / f"{name}.safetensors", safetensors.torch.save(tensors))
        remove_folder(folder)
        self.store.note_time(f"trained.seed-{seed}", time.monotonic() - begun)
