"""A case as files that another project can read: the network, the original, the data and the split.

`data.safetensors` holds the inputs as the benchmark has them; `about.json` says how they are scaled before the network,
so a peer gets the numbers that our model computes with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unweave import Split, UsageError
from unweave.data import RETAINED, SUBSETS
from unweave.evaluation import array, predict
from unweave.lab.benchmarks import Benchmark, BenchmarkTask, find_benchmark
from unweave.lab.benchmarks.images import PixelClassifier

BYTE = 255.0


@dataclass(frozen=True)
class Case:
    """A folder that `prepare` has filled."""

    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """The benchmark, its options, the seed, and what training took."""
        file = self.folder / "about.json"
        if not file.exists():
            raise UsageError(f"{self.folder} has no about.json. Make it with `python -m bench.peers prepare`.")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Inputs, labels, fine classes and the rows of every subset."""
        return load_file(self.folder / "data.safetensors")

    def split(self, part: str) -> Split:
        """Return the split of ``train`` or ``test``."""
        found = self.tensors
        gone, near = (found[f"{part}.{subset}"].numpy() for subset in ("forget", "adjacent"))
        return Split((found[f"{part}.inputs"], found[f"{part}.labels"]), gone, near)

    def model(self, weights: Path | None = None) -> nn.Module:
        """Return our model with the original's weights, or with those in a file."""
        model = find_benchmark(self.about["benchmark"], options=self.about["options"]).initial(0)
        inner_of(model).load_state_dict(load_file(weights or self.folder / "original.safetensors"))
        return model.eval()

    def six(self, model: nn.Module) -> dict[str, float]:
        """Return the accuracies on the subsets of training and test data."""
        found = {}
        for part in ("train", "test"):
            split = self.split(part)
            for subset in SUBSETS:
                rows = torch.from_numpy(np.asarray(split[subset]))
                found[f"{part} {subset}"] = float(
                    array(predict(model, split.samples, rows, device="cpu").correct).mean()
                )
        return found


def inner_of(model: nn.Module) -> nn.Module:
    """Return the network without the scaling of its images."""
    if isinstance(model, PixelClassifier):
        network: nn.Module = model.network
        return network
    return model


def prepare(
    name: str, options: Mapping[str, Any], *, data: str | None, seed: int, folder: Path, like: Path | None = None
) -> Case:
    """Train an original and a retrained model, and write them with the data and the split into a folder.

    A case that is there already is kept. ``like`` is a folder whose original is used instead of a new one: the same
    benchmark with something else to forget.
    """
    wanted = {"benchmark": name, "options": dict(options), "seed": seed}
    if (folder / "about.json").exists():
        if {key: Case(folder).about[key] for key in wanted} != wanted:
            raise UsageError(f"{folder} holds another case. Choose another --out.")
        return Case(folder)
    benchmark = find_benchmark(name, options=options, data=data)
    task = benchmark.load()
    if task.test is None:
        raise UsageError(f"{name} has no test data, which the six accuracies need.")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(task), folder / "data.safetensors")
    model = benchmark.initial(seed)
    torch.save(inner_of(model), folder / "network.pt")
    about = {**wanted, **_scale(model)}
    if like is None:
        about["training"] = {
            who: _train(benchmark, task, seed=seed, subsets=subsets, file=folder / f"{who}.safetensors")
            for who, subsets in (("original", SUBSETS), ("retrained", RETAINED))
        }
    else:
        other = Case(like)
        if not benchmark.trains_like(other.about["benchmark"], other.about["options"]) or other.about["seed"] != seed:
            raise UsageError(f"{like} holds an original of {other.about['benchmark']} with other options or seed.")
        (folder / "original.safetensors").write_bytes((like / "original.safetensors").read_bytes())
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return Case(folder)


def _train(
    benchmark: Benchmark, task: BenchmarkTask, *, seed: int, subsets: tuple[str, ...], file: Path
) -> dict[str, float]:
    begun, busy = time.perf_counter(), time.process_time()
    model = benchmark.train(task, seed=seed, subsets=subsets, device="cpu", progress=False)
    spent = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - busy}
    save_file({key: value.contiguous() for key, value in inner_of(model).state_dict().items()}, file)
    samples = sum(len(task.train[subset]) for subset in subsets)
    return {**{key: round(value, 2) for key, value in spent.items()}, "gradients": benchmark.recipe.epochs * samples}


def _tensors(task: BenchmarkTask) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for part, split in (("train", task.train), ("test", task.test)):
        assert split is not None
        inputs, labels = split.samples.read(torch.arange(len(split.samples)))
        found |= {f"{part}.inputs": inputs.contiguous(), f"{part}.labels": labels.contiguous()}
        found |= {f"{part}.{subset}": torch.from_numpy(np.asarray(split[subset])).contiguous() for subset in SUBSETS}
    if not task.fine:
        raise UsageError("Peers tell classes from superclasses, so the benchmark needs fine classes.")
    found["train.fine"] = torch.tensor(task.fine)
    return found


def _scale(model: nn.Module) -> dict[str, Any]:
    """Return what a peer must do to the stored inputs: divide, subtract the mean, divide by the deviation."""
    if not isinstance(model, PixelClassifier):
        return {"divide": 1.0, "mean": [0.0], "std": [1.0]}
    if model.augment:
        raise UsageError("The benchmark's model shifts its images in training, which peers would not do.")
    return {"divide": BYTE, "mean": model.mean.flatten().tolist(), "std": model.std.flatten().tolist()}
