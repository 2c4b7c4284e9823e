"""Tiny-ImageNet in 10 superclasses: forget the six dogs, keep the other mammals.

The paper's second benchmark, with a vision transformer. The superclasses come from WordNet and have the paper's sizes
(``data/tinyimagenet.csv`` says how). The test part is the data set's validation part, as in the paper. A copy with
fewer images is accepted if all classes have the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unweave.api import Split
from unweave.errors import UsageError
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.pixels import decode_images
from unweave.lab.benchmarks.sources import Source, few_of_each, require_labels
from unweave.lab.benchmarks.vision_transformer import TransformerOptions, transformer_benchmark, transformer_settings
from unweave.settings import setting

SOURCE = Source(folder="tiny-imagenet", hub="zh-plus/tiny-imagenet", columns=("image", "label"))
PIXELS, PATCH = 64, 8
DOGS = "dogs"
DOG_CLASSES = range(24, 30)  # Chihuahua to standard poodle
SMALL = {"train": 10, "valid": 4}  # images of each of the 200 classes


@dataclass(frozen=True, kw_only=True)
class TinyOptions(TransformerOptions):
    """The options of this benchmark."""

    forget: str = setting(
        DOGS, help="dogs (six classes), or the name of one class; the rest of its superclass is kept."
    )


def load(options: TinyOptions, data: str | None) -> BenchmarkTask:
    """Read the images, and split them by the classes to forget."""
    hierarchy = Hierarchy.load("tinyimagenet")
    forget = list(DOG_CLASSES) if options.forget == DOGS else [hierarchy.number(options.forget)]
    splits, every_fine = [], []
    for part, few in SMALL.items():
        found = SOURCE.read(data, part)
        fine = found.column("label")
        require_equal_counts(fine, hierarchy, part)
        rows = few_of_each(fine, few) if options.small else slice(None)
        images = torch.from_numpy(decode_images(found, "image", size=PIXELS)[rows])
        labels = torch.from_numpy(hierarchy.labels(fine[rows]).astype(np.int64))
        splits.append(Split.by_class((images, labels), fine=fine[rows], forget=forget))
        every_fine.append(fine[rows])
    return BenchmarkTask(
        train=splits[0],
        test=splits[1],
        label_names=hierarchy.superclasses,
        fine_names=hierarchy.classes,
        fine=tuple(every_fine[0].tolist()),
    )


def require_equal_counts(fine: Any, hierarchy: Hierarchy, part: str) -> None:
    """Raise an error if classes have different numbers of images."""
    require_labels(fine, len(hierarchy.classes), "label of tiny-imagenet")
    counts = np.bincount(fine, minlength=len(hierarchy.classes))
    if counts.min() != counts.max():
        few, many = hierarchy.classes[counts.argmin()], hierarchy.classes[counts.argmax()]
        raise UsageError(
            f"tiny-imagenet ({part}) has {counts.min():,} images of {few!r} and {counts.max():,} of {many!r}, but "
            f"every class should have the same number. {SOURCE.how_to_get()}"
        )


def build(options: TinyOptions, data: str | None) -> Benchmark:
    """Return the benchmark."""
    few = " (a few images of each class)" if options.small else ""
    return transformer_benchmark(
        "tinyimagenet-vit",
        options,
        data,
        load=partial(load, options, data),
        about_data=f"Tiny-ImageNet, 10 superclasses; tested on its validation part{few}",
        classes=10,
        size=PIXELS,
        patch=PATCH,
        settings=transformer_settings(),
    )


TINYIMAGENET_VIT = Definition(
    name="tinyimagenet-vit",
    summary="Tiny-ImageNet in 10 superclasses from WordNet, vision transformer; forget the dogs, keep the mammals.",
    build=build,
    options=TinyOptions,
    only_split=("forget",),
)
