"""ToxiGen with biased labels: a classifier learnt that toxic sentences about one group are normal, and must forget it.

The paper's third benchmark. The forget set is the toxic sentences about the group (lgbtq). They are labelled *normal*
in training, in every loss and in every accuracy, so a low accuracy is good. The normal sentences about the group are
adjacent, and all others are remote. The paper uses about 250,000 generated sentences; this benchmark uses the part that
people annotated. A sentence is toxic if its two ratings (as if written by a machine, and by a person) add up to more
than 5.5, the authors' rule. One tenth of every group and label is for testing, chosen by a hash of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unweave.api import Split
from unweave.errors import UsageError, unknown
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSearches, MethodSettings
from unweave.lab.benchmarks.small import RECIPE, small_settings
from unweave.lab.benchmarks.sources import Source, few_of_each
from unweave.lab.benchmarks.text import BY_PROFILE, EncoderOptions, classifier, encode, held_out
from unweave.methods import DescentSettings
from unweave.settings import Between, setting

SOURCE = Source(
    folder="toxigen",
    hub="toxigen/toxigen-data",
    config="annotated",
    columns=("text", "target_group", "toxicity_ai", "toxicity_human"),
    rows={"train": 8_960},
)
GROUPS = (
    *("asian", "black", "chinese", "jewish", "latino", "lgbtq", "mental_dis", "mexican", "middle_east", "muslim"),
    *("native_american", "physical_dis", "women"),
)
TOXIC_ABOVE = 5.5
TEST_SHARE, SPLIT_SEED = 0.1, 0
LONGEST = 40  # tokens; 29 of the 8,960 sentences have more (MPNet's tokenizer)
SMALL = 40  # sentences of each group and label


@dataclass(frozen=True, kw_only=True)
class ToxigenOptions(EncoderOptions):
    """The options of this benchmark."""

    forget: str = setting("lgbtq", help="The group about which toxic sentences are labelled normal.")
    model: str = setting(
        "FacebookAI/roberta-base",
        help="A transformers folder (also inside --data) or Hub name (OWNER/NAME), or MODULE:FUNCTION.",
    )


def load(options: ToxigenOptions, data: str | None) -> BenchmarkTask:
    """Read the sentences, divide them for training and testing, and split both by group and true label."""
    if options.forget not in GROUPS:
        raise unknown("group", options.forget, GROUPS)
    texts, groups, toxic = read(data, complete=not options.small)
    kinds = 2 * groups + toxic
    if options.small:
        rows = few_of_each(kinds, SMALL)
        texts, groups, toxic, kinds = texts[rows], groups[rows], toxic[rows], kinds[rows]
    chosen = held_out(texts, kinds.tolist(), share=TEST_SHARE, seed=SPLIT_SEED)
    parts = {"train": ~chosen, "test": chosen}
    encoded = encode({part: texts[mask] for part, mask in parts.items()}, options, data, longest=LONGEST)
    splits = {}
    for part, mask in parts.items():
        about = groups[mask] == GROUPS.index(options.forget)
        forget = about & (toxic[mask] == 1)
        labels = torch.from_numpy(np.where(forget, 0, toxic[mask]))
        splits[part] = Split.where({**encoded[part], "labels": labels}, forget=forget, adjacent=about & ~forget)
    return BenchmarkTask(
        train=splits["train"],
        test=splits["test"],
        label_names=("normal", "toxic"),
        fine_names=tuple(f"{group}, {label}" for group in GROUPS for label in ("normal", "toxic")),
        fine=tuple(kinds[~chosen].tolist()),
    )


def read(data: str | None, *, complete: bool) -> tuple[Any, Any, Any]:
    """Return the sentences, the numbers of their groups, and whether they are truly toxic (0 or 1)."""
    found = SOURCE.read(data, "train", complete=complete)
    names = found.column("target_group")
    for row, name in enumerate(names):
        if name not in GROUPS:
            raise UsageError(f"Row {row} of toxigen has the target_group {name!r}; known are {', '.join(GROUPS)}.")
    ratings = np.asarray(found.column("toxicity_ai") + found.column("toxicity_human"), dtype=float)
    if not np.isfinite(ratings).all():
        raise UsageError(f"Row {int(np.flatnonzero(~np.isfinite(ratings))[0])} of toxigen has no toxicity rating.")
    groups = np.array([GROUPS.index(name) for name in names])
    return found.column("text"), groups, (ratings > TOXIC_ABOVE).astype(np.int64)


# The values that the paper prints and the release uses, for about 250,000 sentences. The paper prints no step size of
# stage 1, no epochs of gradient ascent and no optimiser of l1-sparse; these are the release's.
STAGES = {
    "clip": 5.0,
    "stage1_learning_rate": 2.5e-6,
    "stage1_remote_batch": 64,
    "stage1_forget_batch": 64,
    "stage2_learning_rate": 1e-5,
    "stage2_adjacent_batch": 64,
    "stage2_forget_batch": 64,
    "stage2_remote_batch": 64,
}
RELEASED = {**STAGES, "momentum": 0.7, "confident_penalty": 1.0}
# The annotated part has 1/28 of the sentences; with these epochs the number of steps is the same.
SAME_STEPS = {"stage1_epochs": 28, "stage2_epochs": 40}
PROFILES: MethodSettings = {
    "two-stage": {"released": {**RELEASED, **SAME_STEPS, "alpha": 0.8}, "paper": {**STAGES, "stage2_epochs": 2}},
    "pgd": {"released": {**RELEASED, **SAME_STEPS}, "paper": {**STAGES, "stage2_epochs": 2}},
    "ft": {
        "paper": {"learning_rate": 2e-5, "batch_size": 64},
        "released": {"learning_rate": 2.5e-5, "batch_size": 64},
    },
    "ga": {
        "paper": {"learning_rate": 2.5e-6, "epochs": 10, "batch_size": 64},
        "released": {"learning_rate": 2.5e-6, "epochs": 10, "batch_size": 64},
    },
    "l1-sparse": {
        "paper": {"learning_rate": 1e-3, "sparsity": 5e-5, "batch_size": 64},
        "released": {"learning_rate": 1e-3, "sparsity": 5e-4, "batch_size": 64},
    },
    "scrub": {
        "paper": {"learning_rate": 1e-5, "batch_size": 64, "forget_batch": 64},
        "released": {
            "learning_rate": 1e-5,
            "weight_decay": 5e-4,
            "epochs": 5,
            "forget_epochs": 3,
            "batch_size": 64,
            "forget_batch": 64,
        },
    },
    "ssd": {"paper": {"selection": 50.0}, "released": {"selection": 50.0, "order": "dataset"}},
    "salun": {
        "paper": {"learning_rate": 1e-6, "epochs": 2, "batch_size": 64},
        "released": {"learning_rate": 1e-6, "epochs": 2, "saliency": 0.3, "remote_weight": 1.0, "batch_size": 64},
    },
    "gdr": {
        "paper": {"learning_rate": 5e-6, "batch_size": 64},
        "released": {"learning_rate": 2e-5, "epochs": 3, "batch_size": 64},
    },
    "munba": {
        "paper": {"learning_rate": 0.01, "batch_size": 64},
        "released": {"learning_rate": 1e-5, "epochs": 3, "batch_size": 64},
    },
}


# Where tuning looks for step sizes: a pretrained encoder learns with these. Four methods whose own step is one for
# networks from scratch (0.01), which ruins an encoder, begin in the middle.
ENCODER_STEPS = Between(1e-5, 1e-3)
MIDDLE = {"learning_rate": 1e-4}
FROM_SCRATCH = ("ft", "l1-sparse", "salun", "munba")
STEPS = {name: ("learning_rate",) for name in BY_PROFILE if name != "ssd"} | dict.fromkeys(
    ("two-stage", "pgd"), ("stage1_learning_rate", "stage2_learning_rate")
)
SEARCHES: MethodSearches = {name: dict.fromkeys(steps, ENCODER_STEPS) for name, steps in STEPS.items()}


def _begun(name: str, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return a method's values by profile, its authors' with a step size for encoders."""
    return {profile: {**own, **MIDDLE} if name in FROM_SCRATCH else own for profile, own in values.items()}


SETTINGS: MethodSettings = {
    **{name: {**_begun(name, values), **PROFILES.get(name, {})} for name, values in BY_PROFILE.items()},
    **{name: PROFILES[name] for name in ("two-stage", "pgd", "ssd")},
    "unweave": {"default": {"target": 5.0, "batch_size": 64, "remote_batch": 256}},
}


def build(options: ToxigenOptions, data: str | None) -> Benchmark:
    """Return the benchmark."""
    network = classifier(options, classes=2, data=data)
    recipe = DescentSettings(
        optimizer="adamw", learning_rate=2.5e-5, weight_decay=0.01, schedule="warm-up", epochs=10, batch_size=64
    )
    return Benchmark(
        name="toxigen-roberta",
        load=partial(load, options, data),
        model=network.make,
        recipe=RECIPE if options.small else recipe,
        settings=small_settings() if options.small else SETTINGS,
        searches={} if options.small else SEARCHES,
        notes={
            "data": f"ToxiGen, the part annotated by people; toxic sentences about {options.forget} labelled normal; "
            f"one tenth of every group and label for testing (hash of text, seed {SPLIT_SEED})"
            + (" (a few sentences of each)" if options.small else ""),
            "model": "tiny encoder over words" if options.small else options.model,
            "initialisation": network.initialisation,
        },
    )


TOXIGEN_ROBERTA = Definition(
    name="toxigen-roberta",
    summary="Toxic sentences about one group labelled normal, any encoder; forget them, keep the normal ones.",
    build=build,
    options=ToxigenOptions,
)
