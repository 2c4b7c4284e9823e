"""CLINC150: questions to an assistant, labelled by domain; forget one intent, keep the 14 others of its domain.

This benchmark is not in the paper. It adds a class to forget in a text hierarchy to ToxiGen's biased labels. There are
150 intents in 10 domains, with 100 training and 30 test questions each. Questions out of scope, which some copies
contain, are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unweave.api import Split
from unweave.errors import UsageError, unknown
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.small import RECIPE, small_settings
from unweave.lab.benchmarks.sources import Source, few_of_each
from unweave.lab.benchmarks.text import BY_PROFILE, EncoderOptions, classifier, encode
from unweave.methods import DescentSettings
from unweave.settings import setting

SOURCE = Source(folder="clinc150", hub="clinc/clinc_oos", config="plus", columns=("text", "intent"))
OUT_OF_SCOPE = "oos"
EACH = {"train": 100, "test": 30}  # questions per intent
SMALL = {"train": 10, "test": 4}
LONGEST = 24  # tokens; 32 of the 15,000 training questions have more (MiniLM's tokenizer)


@dataclass(frozen=True, kw_only=True)
class ClincOptions(EncoderOptions):
    """The options of this benchmark."""

    forget: str = setting("balance", help="The intent to forget; the rest of its domain is adjacent.")


def load(options: ClincOptions, data: str | None) -> BenchmarkTask:
    """Read the questions, and split them by the intent to forget."""
    hierarchy = Hierarchy.load("clinc150")
    forget = hierarchy.number(options.forget)
    texts, fine = {}, {}
    for part, few in SMALL.items():
        texts[part], fine[part] = read(data, part, hierarchy, complete=not options.small)
        if options.small:
            rows = few_of_each(fine[part], few)
            texts[part], fine[part] = texts[part][rows], fine[part][rows]
    encoded = encode(texts, options, data, longest=LONGEST)
    splits = {
        part: Split.by_class(
            {**encoded[part], "labels": torch.from_numpy(hierarchy.labels(numbers).astype(np.int64))},
            fine=numbers,
            forget=forget,
        )
        for part, numbers in fine.items()
    }
    return BenchmarkTask(
        train=splits["train"],
        test=splits["test"],
        label_names=hierarchy.superclasses,
        fine_names=hierarchy.classes,
        fine=tuple(fine["train"].tolist()),
    )


def read(data: str | None, part: str, hierarchy: Hierarchy, *, complete: bool) -> tuple[Any, Any]:
    """Return the questions of one part and the numbers of their intents."""
    found = SOURCE.read(data, part)
    intents = found.words("intent")
    inside = intents != OUT_OF_SCOPE
    numbers = {name: number for number, name in enumerate(hierarchy.classes)}
    for intent in intents[inside]:
        if intent not in numbers:
            raise unknown("intent", str(intent), hierarchy.classes)
    fine = np.array([numbers[intent] for intent in intents[inside]])
    counts = np.bincount(fine, minlength=len(numbers))
    if complete and (counts != EACH[part]).any():
        name = hierarchy.classes[int(np.flatnonzero(counts != EACH[part])[0])]
        raise UsageError(
            f"clinc150 ({part}) has {counts[numbers[name]]} questions of {name!r}, but should have {EACH[part]} of "
            f"every intent. {SOURCE.how_to_get()}"
        )
    return found.column("text")[inside], fine


# Found on a fifth of the questions with MiniLM. The forget batch holds the whole forget set.
TWO_STAGE = {
    "stage1_learning_rate": 5e-6,
    "stage1_remote_batch": 64,
    "stage1_forget_batch": 32,
    "stage2_learning_rate": 3e-4,
    "stage2_epochs": 4,
    "stage2_adjacent_batch": 64,
    "stage2_remote_batch": 256,
    "stage2_remote_batches": 4,
}
WITHOUT_MOMENTUM = {**TWO_STAGE, "stage2_learning_rate": 1e-3}
SETTINGS: MethodSettings = {
    "two-stage": {"released": TWO_STAGE, "paper": WITHOUT_MOMENTUM},
    "pgd": {"released": TWO_STAGE, "paper": WITHOUT_MOMENTUM},
    "unweave": {"default": {"batch_size": 64, "remote_batch": 256}},
    **BY_PROFILE,
}


def build(options: ClincOptions, data: str | None) -> Benchmark:
    """Return the benchmark."""
    network = classifier(options, classes=10, data=data)
    recipe = DescentSettings(
        optimizer="adamw", learning_rate=5e-5, weight_decay=0.01, schedule="warm-up", epochs=6, batch_size=64
    )
    return Benchmark(
        name="clinc150",
        load=partial(load, options, data),
        model=network.make,
        recipe=RECIPE if options.small else recipe,
        settings=small_settings() if options.small else SETTINGS,
        notes={
            "data": "CLINC150, 10 domains" + (" (a few questions of each intent)" if options.small else ""),
            "model": "tiny encoder over words" if options.small else options.model,
            "initialisation": network.initialisation,
        },
    )


CLINC150 = Definition(
    name="clinc150",
    summary="Questions to an assistant in 10 domains, any encoder; forget one intent, keep the rest of its domain.",
    build=build,
    options=ClincOptions,
    only_split=("forget",),
)
