"""The trained models of a study: one process trains each of them, and all processes share it."""

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

from unweave.data import SUBSETS
from unweave.engine import CheckpointFolder, Compute
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.lab.study.store import Store
from unweave.runs import UNFINISHED, load_weights, remove_folder
from unweave.storage import Lock, write_whole


def take_originals(benchmark: Benchmark, store: Store, source: Path, seeds: Iterable[int]) -> dict[str, Any] | None:
    """Copy the originals of these seeds from another study and return their provenance; None if none is used.

    The other study must have the same benchmark. Its options may differ in what to forget, if that does not change
    training. Seeds without an original there are trained later. An original that this study already has stays.
    """
    other = Store.open(source)
    about = other.about()
    if not benchmark.trains_like(about["benchmark"], about.get("options", {})):
        raise UsageError(
            f"{source} has originals of {other.title}, which are trained differently from those of {benchmark.title}. "
            "Give a study whose options differ only in what to forget, or train the originals here."
        )
    names = [f"original.seed-{seed}" for seed in sorted(set(seeds))]
    names = [name for name in names if (other.models / f"{name}.safetensors").exists()]
    if not names:
        raise UsageError(f"{source} has no originals of the requested seeds. Was it run with --keep-models none?")
    with Lock(store.locks / "originals.lock", wait=True):  # another process may be doing the same
        taken = {name.rpartition("-")[2]: _taken(name, store, other) for name in names}
    hashes = {seed: found for seed, found in taken.items() if found}
    return {"study": other.title, "hashes": hashes, "provenance": other.provenance()[:1]} if hashes else None


def _taken(name: str, store: Store, other: Store) -> str | None:
    """Copy an original unless the study has it or is training it; return its hash if it equals the other study's."""
    file = f"{name}.safetensors"
    data, own = (other.models / file).read_bytes(), store.models / file
    with Lock.claim(store.locks / f"model.{name}.lock") as claim:
        if claim is not None and not own.exists():
            write_whole(own, data)
        same = claim is not None and own.read_bytes() == data
    return hashlib.blake2b(data, digest_size=16).hexdigest() if same else None


def tidy_models(home: Home) -> None:
    """Remove checkpoints and locks of models that are trained: a process may have been killed before it could do so."""
    for model in home.models.glob("*.safetensors"):
        lock, folder = home.locks / f"model.{model.stem}.lock", home.models / (model.stem + UNFINISHED)
        if not (lock.exists() or folder.exists()):
            continue
        with Lock.claim(lock) as claim:  # which removes it in the end
            if claim is not None and folder.exists():
                remove_folder(folder)


class NotYet(Exception):  # noqa: N818
    """Another process is training the model. Do other work meanwhile."""


class Home(Protocol):
    """A folder that keeps trained models for several processes."""

    models: Path
    locks: Path

    def note_time(self, name: str, seconds: float) -> None:
        """Record how long something took."""


class Shown(Protocol):
    """A display of the progress."""

    bar: Bar

    def train(self, seed: int) -> None:
        """Show that a model is being trained."""


class Originals:
    """Returns the original of a seed, and trains it if there is none. Interrupted training resumes.

    With other ``subsets`` the models are of another ``kind``, which is the first word of their file names.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        store: Home,
        task: Callable[[], BenchmarkTask],
        progress: Shown,
        *,
        computing: Compute,
        stop: Callable[[], bool],
        kind: str = "original",
        subsets: tuple[str, ...] = SUBSETS,
    ) -> None:
        self.benchmark, self.store, self.task, self.progress = benchmark, store, task, progress
        self.computing, self.stop, self.kind, self.subsets = computing, stop, kind, subsets
        self._known: dict[int, nn.Module] = {}

    def __call__(self, seed: int) -> nn.Module:
        """Return the original of a seed. Raises `NotYet` while another process trains it."""
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
        task = self.task()
        if not self.benchmark.has_trained(task, self.subsets):
            self.progress.train(seed)
        begun, folder = time.monotonic(), self.store.models / (name + UNFINISHED)
        model = self.benchmark.train(
            task,
            seed=seed,
            subsets=self.subsets,
            **self.computing.working,
            progress=self.progress.bar,
            checkpoints=CheckpointFolder(folder),
            stop=self.stop,
        )
        # Clones, because weights that a model ties (embedding and head) would share memory, which the file refuses.
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in model.state_dict().items()}
        self.store.note_time(f"trained.seed-{seed}", time.monotonic() - begun)  # times of several processes add up
        write_whole(self.store.models / f"{name}.safetensors", safetensors.torch.save(tensors))
        remove_folder(folder)
