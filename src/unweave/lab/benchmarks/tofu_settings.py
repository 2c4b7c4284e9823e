"""Settings of methods for language models on TOFU, and what methods are given there.

Methods that fine-tune take the step size that the original is trained with (open-unlearning: AdamW 1e-5 for both).
None of these values was tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unweave.lab.benchmarks.benchmark import BenchmarkTask, MethodSearches, MethodSettings
from unweave.lab.benchmarks.tofu_data import AuthorOptions
from unweave.methods import DescentSettings, Method, methods_for
from unweave.settings import Between, OneOf, Search

# As open-unlearning trains its originals.
RECIPE = DescentSettings(
    optimizer="adamw",
    learning_rate=1e-5,
    weight_decay=0.01,
    schedule="linear",
    epochs=5,
    batch_size=32,
    normalisation="eval",
)


def recipe_of(options: AuthorOptions) -> DescentSettings:
    """Return how the original is trained."""
    chosen = {"learning_rate": options.rate, "epochs": options.epochs, "batch_size": options.batch}
    return SMALL_RECIPE if options.small else DescentSettings.parse({**RECIPE.to_dict(), **chosen})


SMALL_RECIPE = DescentSettings(
    optimizer="adamw", learning_rate=8e-3, schedule="warm-up", epochs=40, batch_size=20, normalisation="eval"
)
FORGOTTEN = 4.0  # mean token loss of a forgotten answer: a probability of 2%, where retrained models have about 10%
PASSES = 5
LIKE_FINE_TUNING = {"optimizer": "adamw", "momentum": 0.0, "weight_decay": 0.01, "batch_size": 32, "epochs": PASSES}
# Steps relative to the weights. Fixed ones of the size of fine-tuning do not move stage 2, which is plain descent.
TWO_STAGE = {
    "steps": "scaled",
    "confident_penalty": 0.1,
    "stage1_learning_rate": 3e-3,
    "stage1_epochs": 1,
    "stage1_remote_batch": 32,
    "stage1_forget_batch": 16,
    "stage2_learning_rate": 1e-2,
    "stage2_epochs": 2,
    "stage2_adjacent_batch": 32,
    "stage2_forget_batch": 32,
    "stage2_remote_batch": 32,
    "stage2_forget_batches": 1,
    "stage2_remote_batches": 1,
    "clip": FORGOTTEN,
}
PGD = {
    "stage1_learning_rate": 1e-5,
    "stage1_remote_batch": 32,
    "stage2_learning_rate": 1e-5,
    "stage2_adjacent_batch": 32,
    "stage2_forget_batch": 32,
    "stage2_remote_batch": 32,
    "clip": FORGOTTEN,
}
FOR_LANGUAGE: MethodSettings = {
    "ft": {"official": LIKE_FINE_TUNING},
    "ga": {"official": LIKE_FINE_TUNING},
    "l1-sparse": {"official": {"batch_size": 32, "epochs": PASSES}},
    "gdr": {"official": {"batch_size": 32}},
    "two-stage": {"released": TWO_STAGE, "paper": TWO_STAGE},
    "pgd": {"released": PGD, "paper": PGD},
    "unweave": {"default": {"batch_size": 32, "remote_batch": 32, "forget_batch": 64, "target": FORGOTTEN}},
    "adaptive": {"default": {"forget_batch": 32, "effort": 2.0}},  # a pass over the kept data is long here
}


def language_settings(options: AuthorOptions) -> MethodSettings:
    """Return the settings of methods. Those that fine-tune take the step size that the original is trained with.

    Where that is open-unlearning's, methods for language models keep their own, which are meant for it.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, method in methods_for(tokens=True).items():
        given = FOR_LANGUAGE.get(name, {})
        for profile in method.profiles:
            values = dict(given.get(profile, {}))
            if _fine_tunes(method) and (not method.needs_tokens or options.rate != RECIPE.learning_rate):
                values["learning_rate"] = options.rate
            found.setdefault(name, {})[profile] = values
    return found


def language_searches(options: AuthorOptions) -> MethodSearches:
    """Return where to look for settings. Published sweeps go from the step size of training to a few times that."""
    steps = Between(options.rate / 10, 3 * options.rate)
    found: dict[str, dict[str, Search]] = {
        name: {"learning_rate": steps} for name, method in methods_for(tokens=True).items() if _fine_tunes(method)
    }
    # Steps are relative to the weights in the next two, and a pretrained network bears small ones only. A margin
    # of 2 is a loss of 4.
    relative = Between(1e-3, 3e-2)
    found["adaptive"] = {"learning_rate": relative, "reach": relative, "margin": OneOf(0.5, 1.0, 1.5)}
    found["two-stage"] = {"stage1_learning_rate": relative, "stage2_learning_rate": relative}
    return found


def _fine_tunes(method: type[Method]) -> bool:
    return issubclass(method, DescentSettings) and method.name != "retrain"


SMALL_TWO_STAGE = {
    **PGD,
    "stage1_learning_rate": 1e-4,
    "stage2_learning_rate": 1e-3,
    "stage2_epochs": 3,
}


def small_language_settings() -> MethodSettings:
    """Return settings for runs of the tiny model, for every method and profile. The numbers mean nothing."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, method in methods_for(tokens=True).items():
        known = {row["name"] for row in method.describe()}
        values: dict[str, Any] = {"batch_size": 16, "epochs": 5, "learning_rate": 1e-3, "layer": 1, "longest": 24}
        values |= {"count": 1, "fixed_epochs": 2}
        values = {setting: value for setting, value in values.items() if setting in known}
        if name == "adaptive":  # its step size is relative to the weights, and it finds its number of steps
            del values["learning_rate"]
        if name == "unweave":
            values = {"batch_size": 32, "remote_batch": 64, "epochs": 3, "least_steps": 20, "target": FORGOTTEN}
        if "stage1_epochs" in known:
            values = {setting: value for setting, value in SMALL_TWO_STAGE.items() if setting in known}
        found[name] = {profile: dict(values) for profile in method.profiles}
    return found


def given_for(task: BenchmarkTask) -> Mapping[str, Any]:
    """Return what methods are given on this benchmark: the tokenizer; wrong answers, as alternatives for DPO."""
    words, rows = task.wording, [task.rows[row] for row in task.train.forget] if task.rows else []
    if words is None:
        return {}
    found: dict[str, Any] = {"tokenizer": words.tokenizer}
    wrong = [row.get("perturbed_answer") or [] for row in rows]
    each = min(map(len, wrong), default=0)
    if each:
        texts = [{**row, "answer": other} for row in rows for other in row["perturbed_answer"][:each]]
        found["alternatives"] = words.tokens(texts)
    return found
