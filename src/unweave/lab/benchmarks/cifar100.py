"""CIFAR-100 in its 20 superclasses: forget one class, keep the four others of its superclass.

The paper's first benchmark: ResNet-18 with ImageNet weights on images enlarged to 224 px; `aquarium_fish` is forgotten.
With ``size=32``, the same network is trained from scratch on images of the original size. The second benchmark has a
vision transformer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from unweave.api import Split
from unweave.errors import UsageError
from unweave.lab.benchmarks import networks
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings, Options
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.images import PixelClassifier
from unweave.lab.benchmarks.pixels import decode_images
from unweave.lab.benchmarks.small import RECIPE, small_settings
from unweave.lab.benchmarks.sources import Source, few_of_each, require_labels
from unweave.lab.benchmarks.vision_transformer import TransformerOptions, transformer_benchmark, transformer_settings
from unweave.methods import DescentSettings
from unweave.settings import setting

SOURCE = Source(
    folder="cifar100",
    hub="uoft-cs/cifar100",
    columns=("img", "fine_label", "coarse_label"),
    rows={"train": 50_000, "test": 10_000},
)
PIXELS, CLASSES = 32, 20
SMALLER = (112, 64)  # the network is pretrained at these sizes as at 224, and methods have the same settings
MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)
SMALL_TRAIN, SMALL_TEST = 20, 8  # images of each of the 100 classes


@dataclass(frozen=True, kw_only=True)
class Cifar100Options(Options):
    """The options of this benchmark."""

    forget: str = setting("aquarium_fish", help="The class to forget; the rest of its superclass is adjacent.")


@dataclass(frozen=True, kw_only=True)
class ResNetOptions(Cifar100Options):
    """The options of the ResNet-18 benchmark."""

    size: Literal[224, 112, 64, 32] = setting(
        224,
        help="224: pretrained, images enlarged, as in the paper. 112, 64: the same with 1/4 or 1/12 of the work. "
        "32: from scratch.",
    )
    model: str = setting(
        "resnet-18-imagenet",
        help="Pretrained: a transformers folder (also inside --data) or Hub name, timm:NAME, or MODULE:FUNCTION.",
    )


def load(options: Cifar100Options, data: str | None) -> BenchmarkTask:
    """Read the images, and split them by the class to forget."""
    hierarchy = Hierarchy.load("cifar100")
    forget = hierarchy.number(options.forget)
    splits, every_fine = [], []
    for part, few in (("train", SMALL_TRAIN), ("test", SMALL_TEST)):
        found = SOURCE.read(data, part, complete=not options.small)
        fine, coarse = found.column("fine_label"), found.column("coarse_label")
        require_labels(fine, len(hierarchy.classes), "fine_label of cifar100")
        if not (hierarchy.labels(fine) == coarse).all():
            row = int(np.flatnonzero(hierarchy.labels(fine) != coarse)[0])
            raise UsageError(
                f"Row {row} of cifar100 ({part}): coarse_label {coarse[row]} does not belong to fine_label {fine[row]}."
            )
        images = decode_images(found, "img", size=PIXELS)
        rows = few_of_each(fine, few) if options.small else slice(None)
        labels = torch.from_numpy(coarse[rows].astype(np.int64))
        splits.append(Split.by_class((torch.from_numpy(images[rows]), labels), fine=fine[rows], forget=forget))
        every_fine.append(fine[rows])
    return BenchmarkTask(
        train=splits[0],
        test=splits[1],
        label_names=hierarchy.superclasses,
        fine_names=hierarchy.classes,
        fine=tuple(every_fine[0].tolist()),
    )


def about_data(options: Options) -> str:
    """Describe the data."""
    return "CIFAR-100, 20 superclasses" + (" (a few images of each class)" if options.small else "")


# The methods' own profiles `paper` and `released` hold the values for this benchmark.
PRETRAINED: MethodSettings = {}

# A network from scratch has weights of another scale and needs larger steps (the prototype's, for the default class).
RESNET_32: MethodSettings = {
    name: {
        profile: {"stage1_learning_rate": 1e-5, "stage2_learning_rate": 1e-4 if profile == "released" else 1e-3}
        for profile in ("released", "paper")
    }
    for name in ("two-stage", "pgd")
}


def build_resnet(options: ResNetOptions, data: str | None) -> Benchmark:
    """Return the benchmark with a ResNet-18."""
    recipe = DescentSettings(optimizer="adam", learning_rate=2e-5, epochs=30, batch_size=128)
    settings: MethodSettings = PRETRAINED
    alike: dict[str, Any] = {}
    model: Any
    if options.small:
        model = partial(_small_resnet, options.size)
        initial = "random"
        recipe, settings = RECIPE, small_settings()
    elif options.size != PIXELS:
        network = networks.image_network(options.model, classes=CLASSES, data=data)
        model = partial(_enlarged, network.make, options.size)
        initial = network.initialisation
        alike = {"size": SMALLER}
    else:
        model = _resnet_32
        initial = "random"
        recipe = DescentSettings(
            optimizer="sgd",
            learning_rate=0.1,
            momentum=0.9,
            weight_decay=5e-4,
            schedule="warm-up",
            epochs=30,
            batch_size=256,
        )
        settings = RESNET_32
    return Benchmark(
        name="cifar100-resnet18",
        load=partial(load, options, data),
        model=model,
        recipe=recipe,
        settings=settings,
        alike=alike,
        notes={
            "data": about_data(options),
            "model": f"ResNet-18 at {options.size} px" + (", width 8" if options.small else ""),
            "initialisation": initial,
        },
    )


def _enlarged(make: Callable[[], nn.Module], size: int) -> nn.Module:
    return PixelClassifier(make(), size=size)


def _resnet_32() -> nn.Module:
    network = networks.resnet18(classes=CLASSES, small_images=True)
    return PixelClassifier(network, size=32, mean=MEAN, std=STD, augment=True)


def _small_resnet(size: int) -> nn.Module:
    network = networks.resnet18(classes=CLASSES, small_images=True, width=8)
    return PixelClassifier(network, size=32 if size == 32 else 24, mean=MEAN, std=STD)


def convolutions(width: int = 32) -> nn.Module:
    """Return a small convolutional network (358,000 parameters at width 32), of which hundreds can be trained."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width * 16, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, CLASSES),
    )


def _convolutional(width: int) -> nn.Module:
    return PixelClassifier(convolutions(width), size=PIXELS, mean=MEAN, std=STD)


def build_cnn(options: Cifar100Options, data: str | None) -> Benchmark:
    """Return the benchmark with a small convolutional network, for attacks that need many models."""
    recipe = DescentSettings(optimizer="adam", learning_rate=1e-3, epochs=15, batch_size=256)
    return Benchmark(
        name="cifar100-cnn",
        load=partial(load, options, data),
        model=partial(_convolutional, 8 if options.small else 32),
        recipe=RECIPE if options.small else recipe,
        settings=small_settings() if options.small else RESNET_32,
        notes={
            "data": about_data(options),
            "model": f"three convolutions at 32 px, width {8 if options.small else 32}",
            "initialisation": "random",
        },
    )


@dataclass(frozen=True, kw_only=True)
class Cifar100TransformerOptions(TransformerOptions, Cifar100Options):
    """The options of the vision transformer's benchmark."""


def build_transformer(options: Cifar100TransformerOptions, data: str | None) -> Benchmark:
    """Return the benchmark with a vision transformer."""
    return transformer_benchmark(
        "cifar100-vit",
        options,
        data,
        load=partial(load, options, data),
        about_data=about_data(options),
        classes=CLASSES,
        size=PIXELS,
        patch=4,
        settings=transformer_settings(),
    )


CIFAR100_RESNET18 = Definition(
    name="cifar100-resnet18",
    summary="CIFAR-100 in 20 superclasses, ResNet-18; forget aquarium_fish or another class, keep its superclass.",
    build=build_resnet,
    options=ResNetOptions,
    only_split=("forget",),
)
CIFAR100_CNN = Definition(
    name="cifar100-cnn",
    summary="The same data at 32 px with a small convolutional network, of which hundreds can be trained for attacks.",
    build=build_cnn,
    options=Cifar100Options,
    only_split=("forget",),
)
CIFAR100_VIT = Definition(
    name="cifar100-vit",
    summary="The same data with a vision transformer.",
    build=build_transformer,
    options=Cifar100TransformerOptions,
    only_split=("forget",),
)
