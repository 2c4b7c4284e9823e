"""Trained models of the tasks, kept in a folder: the original, the one retrained without the forget data, LoRA's base.

A model that is kept belongs to its data, network, recipe and seed; where one of them changed, it is trained again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import unweave as uw
from bench.strangers import families
from bench.strangers.data import Data, Part
from bench.strangers.tasks import Stranger
from bench.strangers.training import Recipe, initial, train
from unweave.data import Samples, adjacency_scores
from unweave.evaluation import features

NEIGHBOURS = 50  # of each forget sample, in test data
FEWEST = 200  # adjacent test samples, where so many are named
SHARE = 0.1


def cache_folder(given: str | None = None) -> Path:
    """Return the folder of trained models: as given, ``UNWEAVE_STRANGERS``, or in the user's cache."""
    if chosen := given or os.environ.get("UNWEAVE_STRANGERS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unweave" / "strangers"


@dataclass(frozen=True)
class Trained:
    """A trained model and what its training took."""

    model: nn.Module
    gradients: int
    seconds: float


class Case:
    """A task with a seed: its data, its original, its splits, and the model retrained without the forget data."""

    def __init__(self, task: Stranger, seed: int, *, data: str | None, cache: Path) -> None:
        self.task, self.seed, self.folder, self.cache = task, seed, data, cache

    @cached_property
    def data(self) -> Data:
        """The data, with the samples to forget marked."""
        return self.task.data(self.folder)

    @cached_property
    def original(self) -> Trained:
        """The model that is to forget."""
        return self._trained("original", None)

    @cached_property
    def retrained(self) -> Trained:
        """A model with the same initial weights, trained without the forget data."""
        return self._trained("retrained", np.flatnonzero(~self.data.train.marked))

    @property
    def has_retrained(self) -> bool:
        """Whether a retrained model is kept already."""
        return (self._models / "retrained.safetensors").exists()

    @cached_property
    def train(self) -> uw.Split:
        """The split of the training data, as a user would make it."""
        part = self.data.train
        pair = (part.inputs, part.labels)
        if self.task.request == "class":
            return uw.Split.by_class(pair, fine=part.fine, forget=str(part.fine[part.marked][0]))
        return uw.Split.by_neighbours(pair, forget=np.flatnonzero(part.marked), model=self._fresh())

    @cached_property
    def test(self) -> uw.Split:
        """The split of the test data, with the same structure."""
        part = self.data.test
        pair, gone = (part.inputs, part.labels), np.flatnonzero(part.marked)
        if self.task.request == "class":
            return uw.Split.by_class(pair, fine=part.fine, forget=str(part.fine[part.marked][0]))
        return uw.Split(pair, gone, self._test_neighbours(), allow_empty=True)

    def prepare(self) -> None:
        """Train or read both models now, and make the splits."""
        for part in ("original", "retrained", "train", "test"):
            getattr(self, part)

    def _test_neighbours(self) -> np.ndarray[Any, Any]:
        """Return the kept test samples that forget training samples name most often as neighbours."""
        train, test = self.data.train, self.data.test
        kept = np.flatnonzero(~test.marked)
        model, rows = self._fresh(), torch.from_numpy(np.flatnonzero(train.marked))
        gone = features(model, Samples((train.inputs, train.labels)), rows, device="cpu")
        near = features(model, Samples((test.inputs, test.labels)), torch.from_numpy(kept), device="cpu")
        scores = adjacency_scores(gone, near, min(NEIGHBOURS, len(kept))).numpy()
        limit = min(len(kept) // 2, max(FEWEST, round(SHARE * len(kept))))
        top = np.argsort(-scores, kind="stable")[:limit]
        return kept[top[scores[top] > 0]]

    @property
    def _models(self) -> Path:
        return self.cache / "models" / self.task.name / f"seed-{self.seed}"

    def _fresh(self) -> nn.Module:
        return copy.deepcopy(self.original.model)

    def _trained(self, name: str, rows: np.ndarray[Any, Any] | None) -> Trained:
        make = self._start()
        return kept_or_trained(self._models / name, make, self.data.train, self.task.recipe, seed=self.seed, rows=rows)

    def _start(self) -> Callable[[], nn.Module]:
        """Return what makes the network before training."""
        data, task = self.data, self.task
        if task.base is None:
            return lambda: task.network(data)
        other = task.base.data(self.folder)
        base = kept_or_trained(
            self._models.with_name("base"), lambda: task.network(other), other.train, task.base.recipe, seed=0
        )
        return lambda: families.adapted(copy.deepcopy(base.model), data.classes)


def kept_or_trained(
    place: Path,
    make: Callable[[], nn.Module],
    part: Part,
    recipe: Recipe,
    *,
    seed: int,
    rows: np.ndarray[Any, Any] | None = None,
) -> Trained:
    """Return the model that is kept at a place if it is this one, otherwise train and keep it."""
    model = initial(make, seed)
    key = _key(model, part, recipe, seed, rows)
    weights, about = place.with_suffix(".safetensors"), place.with_suffix(".json")
    if weights.exists() and about.exists():
        said = json.loads(about.read_text(encoding="utf-8"))
        if said["key"] == key:
            model.load_state_dict(load_file(weights))
            return Trained(model.eval(), said["gradients"], said["seconds"])
    begun = time.process_time()
    gradients = train(model, part, recipe, seed=seed, rows=rows)
    seconds = round(time.process_time() - begun, 2)  # of one core, however many others want it
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = weights.with_name(f"{weights.name}.{os.getpid()}.partial")
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, partial)
    partial.replace(weights)
    said = {"key": key, "gradients": gradients, "seconds": seconds}
    partial = about.with_name(f"{about.name}.{os.getpid()}.partial")  # another process may read it at this moment
    partial.write_text(json.dumps(said) + "\n", encoding="utf-8")
    partial.replace(about)
    return Trained(model, gradients, seconds)


def _key(model: nn.Module, part: Part, recipe: Recipe, seed: int, rows: np.ndarray[Any, Any] | None) -> str:
    digest = hashlib.sha256(f"{model} {recipe} {seed}".encode())
    for weight in model.state_dict().values():
        digest.update(weight.numpy().tobytes())
    for values in (part.inputs.numpy(), part.labels.numpy(), *([] if rows is None else [rows])):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
