"""Handwritten digits: 1,797 real 8×8 images that come with scikit-learn. Nothing is downloaded.

The labels are three superclasses of look-alike digits. The 9 is forgotten. The 1, 4 and 7 are adjacent: they are drawn
with the same strokes and have the same label. Everything takes seconds on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from unweave.api import Split
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings, Options
from unweave.methods import DescentSettings
from unweave.settings import setting

SUPERCLASSES = {"strokes": (1, 4, 7, 9), "curves": (2, 3, 5, 8), "loops": (0, 6)}


@dataclass(frozen=True, kw_only=True)
class DigitsOptions(Options):
    """The options of this benchmark."""

    forget: int = setting(
        9, at_least=0, at_most=9, help="The digit to forget; digits with the same label are adjacent."
    )


def load(options: DigitsOptions) -> BenchmarkTask:
    """Return the digits, with a quarter of each class held out for testing."""
    from sklearn.datasets import load_digits  # slow to import
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    label_of = {digit: label for label, group in enumerate(SUPERCLASSES.values()) for digit in group}
    labels = torch.tensor([label_of[digit] for digit in digits.target])
    train, test = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=0, stratify=digits.target)
    splits = [
        Split.by_class((images[rows], labels[rows]), fine=digits.target[rows], forget=options.forget)
        for rows in (np.sort(train), np.sort(test))
    ]
    return BenchmarkTask(
        train=splits[0],
        test=splits[1],
        label_names=tuple(SUPERCLASSES),
        fine_names=tuple(map(str, range(10))),
        fine=tuple(digits.target[np.sort(train)].tolist()),
    )


def model() -> nn.Module:
    """Return a small convolutional network with BatchNorm (37,000 parameters)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, len(SUPERCLASSES)),
    )


# A network this small needs larger steps than the paper's; the algorithm and the order of the batches are the same.
# The forget batch holds the whole forget set: a last batch of a few samples would weigh as much as a full one.
TWO_STAGE = {
    "stage1_learning_rate": 3e-4,
    "stage1_epochs": 6,
    "stage1_remote_batch": 64,
    "stage1_forget_batch": 16,
    "stage2_learning_rate": 3e-4,
    "stage2_epochs": 25,
    "stage2_adjacent_batch": 64,
    "stage2_forget_batch": 256,
    "stage2_remote_batch": 256,
    "stage2_remote_batches": 2,
}
WITHOUT_MOMENTUM = {**TWO_STAGE, "stage2_learning_rate": 1e-3}
MUNBA = {"learning_rate": 0.1, "epochs": 20, "batch_size": 64}

SETTINGS: MethodSettings = {
    "two-stage": {"released": TWO_STAGE, "paper": WITHOUT_MOMENTUM},
    "pgd": {"released": TWO_STAGE, "paper": WITHOUT_MOMENTUM},
    "unweave": {"default": {"epochs": 20, "batch_size": 64, "remote_batch": 256}},  # 140 steps
    # The baselines: official algorithms, values from a small grid on held-out training data, by `unweave tune`'s rule.
    "ft": {"official": {"learning_rate": 0.1, "epochs": 20, "batch_size": 64}},
    "ga": {"official": {"optimizer": "adam", "learning_rate": 2e-4, "epochs": 7, "batch_size": 64}},
    "l1-sparse": {"official": {"learning_rate": 0.03, "sparsity": 2e-3, "batch_size": 64}},
    "scrub": {
        "official": {"learning_rate": 2e-3, "weight_decay": 0.0, "forget_epochs": 5, "epochs": 7, "batch_size": 64}
    },
    "ssd": {"official": {"selection": 5.0}},
    "salun": {"official": {"learning_rate": 0.1, "batch_size": 64}},
    "delete": {"official": {"learning_rate": 2e-5, "batch_size": 64}},
    "gdr": {"official": {"learning_rate": 1e-3, "epochs": 40, "batch_size": 64}},
    "munba": {"official": MUNBA, "closed-form": MUNBA},
}


def build(options: DigitsOptions, data: str | None) -> Benchmark:
    """Return the benchmark. It has no smaller form, and needs no data folder."""
    return Benchmark(
        name="digits",
        load=partial(load, options),
        model=model,
        recipe=DescentSettings(optimizer="adam", learning_rate=2e-3, epochs=15, batch_size=64),
        settings=SETTINGS,
        notes={
            "data": "scikit-learn's digits: 1,797 real 8×8 images",
            "model": "convolutional network, 37,000 parameters",
            "initialisation": "random",
        },
    )


DIGITS = Definition(
    name="digits",
    summary="Embedded 8×8 digits in three superclasses of look-alikes; forget the 9, keep 1, 4 and 7.",
    build=build,
    options=DigitsOptions,
    only_split=("forget",),
)
