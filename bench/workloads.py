"""The workloads: a model, its data in the form of each side, and the settings that both sides share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset

from bench.released_loop import Loaders, StoredImages
from unweave.api import Split
from unweave.data import SUBSETS
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.benchmarks.images import PixelClassifier
from unweave.lab.benchmarks.networks import resnet18
from unweave.methods import DescentSettings, Method, find_method

METHOD = find_method("two-stage")
RESTARTED_WORKERS = 16  # loader processes that the release asks for
TRAINING = DescentSettings(optimizer="adam", learning_rate=2e-5, epochs=30, batch_size=128)  # of the paper's original
AS_RELEASED = ("two-stage", "pgd", "munba")  # MUNBa diverges with the printed values


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model for each side (ours prepares its images itself), data, and the settings of the methods."""

    name: str
    ours: Callable[[], nn.Module]
    theirs: Callable[[], nn.Module]
    train: Split
    test: Split
    stored: dict[str, StoredImages]
    configured: Callable[[type[Method]], Method]  # a method with its settings
    workers: int  # processes of the yardstick's loaders
    note: str

    @property
    def settings(self) -> Method:
        """The two-stage method with its settings."""
        return self.configured(METHOD)

    def loaders(self, device: torch.device, *, workers: int | None = None) -> dict[str, Loaders]:
        """Return the yardstick's loaders of training and test data."""
        splits = {"train": self.train, "test": self.test}
        return {
            part: Loaders(
                {subset: Subset(self.stored[part], split[subset].tolist()) for subset in SUBSETS},
                workers=self.workers if workers is None else workers,
                device=device,
            )
            for part, split in splits.items()
        }


def digits(*, workers: int) -> Workload:
    """Return the benchmark ``digits`` with its settings. The yardstick reads the same images from bytes."""
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    stored = {}
    for part, split in (("train", task.train), ("test", task.test)):
        images, labels = split.samples.read(torch.arange(len(split.samples)))
        pixels = (images[:, 0] * 240).round().to(torch.uint8).numpy()
        stored[part] = StoredImages(pixels, labels.tolist(), scale=240)
    return Workload(
        name="digits",
        ours=lambda: benchmark.initial(0),
        theirs=lambda: benchmark.initial(0),
        train=task.train,
        test=task.test,
        stored=stored,
        configured=lambda method: method.configure(benchmark.settings_for(method, None)),
        workers=workers,
        note="scikit-learn's digits, convolutional network of 37,000 parameters",
    )


def images(*, size: int = 224, train: int = 50_000, test: int = 10_000) -> Workload:
    """Return a ResNet-18 with random weights and random images, as many as CIFAR-100 has, at ``size`` pixels."""
    generator = np.random.default_rng(0)
    splits, stored = {}, {}
    for part, count in (("train", train), ("test", test)):
        pixels = generator.integers(0, 255, (count, 32, 32, 3), dtype=np.uint8)
        labels = generator.integers(0, 20, count)
        forget, adjacent = count // 100, count // 25
        splits[part] = Split(
            (torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), torch.from_numpy(labels)),
            forget=range(forget),
            adjacent=range(forget, forget + adjacent),
        )
        stored[part] = StoredImages(pixels, labels.tolist(), scale=255, size=size)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return resnet18(classes=20, small_images=size == 32)

    return Workload(
        name=f"resnet-18 at {size} px",
        ours=lambda: PixelClassifier(network(), size=size),
        theirs=network,
        train=splits["train"],
        test=splits["test"],
        stored=stored,
        configured=_printed,
        workers=RESTARTED_WORKERS,
        note=f"random images of 32×32 px enlarged to {size}, 500 forget, 2,000 adjacent and 47,500 remote of 50,000",
    )


def _printed(method: type[Method]) -> Method:
    """Return the settings that the paper prints for CIFAR-100, else those of the release or of the authors."""
    if method.name == "retrain":
        return method.configure(TRAINING.to_dict())
    profile = "released" if method.name in AS_RELEASED else "paper"
    return method.configure(profile=profile if profile in method.profiles else None)
