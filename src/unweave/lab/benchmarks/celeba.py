"""CelebA in four classes, Male × Smiling: forget part of one class by two other attributes.

The paper's last benchmark, with a vision transformer. Of the faces that are female and not smiling, those that are not
young and have no eyeglasses are forgotten; the rest of that class is adjacent. The partition is the official one.
Models are tested on its test part; the paper's released code uses the validation part (``test_part=valid``). A copy
with fewer images is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from unweave.api import Split
from unweave.errors import UsageError
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings
from unweave.lab.benchmarks.networks import SCRATCH
from unweave.lab.benchmarks.pixels import decode_images
from unweave.lab.benchmarks.sources import DataPart, Source, few_of_each
from unweave.lab.benchmarks.vision_transformer import (
    FOR_TRANSFORMERS,
    STAGE1,
    TransformerOptions,
    transformer_benchmark,
)
from unweave.settings import setting

ATTRIBUTES = ("Male", "Smiling", "Young", "Eyeglasses")
SOURCE = Source(folder="celeba", hub="flwrlabs/celeba", columns=("image", *ATTRIBUTES))
LABELS = ("female, not smiling", "female, smiling", "male, not smiling", "male, smiling")
SMALL = {"train": 60, "test": 20}  # images of each of the 16 combinations of attributes


@dataclass(frozen=True, kw_only=True)
class CelebaOptions(TransformerOptions):
    """The options of this benchmark."""

    size: Literal[64, 96] = setting(64, help="Size of the images in px; they are cropped to the middle square.")
    test_part: Literal["test", "valid"] = setting("test", help="The part to test on; the paper's code uses valid.")


def load(options: CelebaOptions, data: str | None) -> BenchmarkTask:
    """Read the images, and split them by their attributes."""
    splits, every_kind = [], []
    for part, few in (("train", SMALL["train"]), (options.test_part, SMALL["test"])):
        found = SOURCE.read(data, part)
        male, smiling, young, glasses = (attribute(found, name, part) for name in ATTRIBUTES)
        kind = 8 * male + 4 * smiling + 2 * young + glasses  # 0: the forget set; 0 to 3: its class
        rows = few_of_each(kind, few) if options.small else slice(None)
        images = torch.from_numpy(decode_images(found, "image", size=options.size)[rows])
        kind = kind[rows]
        labels = torch.from_numpy(kind // 4)
        splits.append(Split.by_class((images, labels), fine=kind, forget=0))
        every_kind.append(kind)
    return BenchmarkTask(
        train=splits[0],
        test=splits[1],
        label_names=LABELS,
        fine_names=tuple(
            ", ".join((LABELS[kind // 4], ("not young", "young")[kind // 2 % 2], ("no glasses", "glasses")[kind % 2]))
            for kind in range(16)
        ),
        fine=tuple(every_kind[0].tolist()),
    )


def attribute(found: DataPart, name: str, part: str) -> Any:
    """Return an attribute as 0 or 1. Copies store it as booleans, as 0 and 1, or as −1 and 1."""
    values = np.asarray(found.column(name))
    if values.dtype.kind not in "biu" or not np.isin(values, (-1, 0, 1)).all():
        raise UsageError(f"The attribute {name} of celeba ({part}) must be true or false, or 1 and −1.")
    return (values > 0).astype(np.int64)


# The paper prints no values for CelebA; these are the release's, for a pretrained ViT-B/32 on 162,770 images.
BATCHES = {
    "stage1_forget_batch": 32,
    "stage2_adjacent_batch": 32,
    "stage2_forget_batch": 32,
    "stage2_remote_batch": 128,
}
# A transformer from scratch uses the learning rates of the release's other transformer.
LARGER_STEPS = {"stage1_learning_rate": STAGE1["stage1_learning_rate"], "stage2_learning_rate": 2e-4}


def celeba_settings(*, scratch: bool) -> MethodSettings:
    """Return the values of every method."""
    stages = {**BATCHES, **(LARGER_STEPS if scratch else {})}
    return {
        "two-stage": {"released": stages, "paper": stages},
        "pgd": {"released": stages, "paper": stages},
        "ft": {"released": {"learning_rate": 2.5e-5}},
        "ga": {"released": {"learning_rate": 2.5e-6, "batch_size": 32}},
        "l1-sparse": {"released": {"learning_rate": 5e-4}},
        "ssd": {"official": FOR_TRANSFORMERS["ssd"], "released": {"order": "dataset"}},
        "scrub": {
            "official": FOR_TRANSFORMERS["scrub"],
            "released": {
                "learning_rate": 1e-5,
                "weight_decay": 5e-4,
                "epochs": 5,
                "forget_epochs": 3,
                "forget_batch": 32,
            },
        },
        "salun": {"released": {"learning_rate": 2e-5, "remote_weight": 1.0, "batch_size": 128, "forget_batch": 32}},
        "gdr": {"released": {"learning_rate": 1e-4, "forget_batch": 32}},
        "munba": {"released": {"learning_rate": 1e-3, "forget_batch": 32}},
    }


def build(options: CelebaOptions, data: str | None) -> Benchmark:
    """Return the benchmark."""
    few = " (a few images of each kind)" if options.small else ""
    return transformer_benchmark(
        "celeba-vit",
        options,
        data,
        load=partial(load, options, data),
        about_data=f"CelebA, Male × Smiling; tested on its {options.test_part} part{few}",
        classes=4,
        size=options.size,
        patch=8,
        settings=celeba_settings(scratch=options.model == SCRATCH),
    )


CELEBA_VIT = Definition(
    name="celeba-vit",
    summary="CelebA, Male × Smiling, vision transformer; forget a fine group of one class, keep the rest of it.",
    build=build,
    options=CelebaOptions,
)
