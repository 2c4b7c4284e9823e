"""Settings of methods for language models on TOFU, and what methods are given there.

Those of methods made for language models are their own defaults. Those of the others are step sizes of fine-tuning
(open-unlearning: AdamW 1e-5, batches of 32); they were not tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unweave.lab.benchmarks.benchmark import BenchmarkTask, MethodSettings
from unweave.lab.benchmarks.tofu_data import AuthorOptions
from unweave.methods import DescentSettings, methods_for

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
LIKE_FINE_TUNING = {"optimizer": "adamw", "learning_rate": 1e-5, "momentum": 0.0, "weight_decay": 0.01}
FORGOTTEN = 4.0  # mean token loss of a forgotten answer: a probability of 2%, where retrained models have about 10%
TWO_STAGE = {
    "stage1_learning_rate": 1e-5,
    "stage1_remote_batch": 32,
    "stage2_learning_rate": 1e-5,
    "stage2_adjacent_batch": 32,
    "stage2_forget_batch": 32,
    "stage2_remote_batch": 32,
    "clip": FORGOTTEN,
}
FOR_LANGUAGE: MethodSettings = {
    "ft": {"official": {**LIKE_FINE_TUNING, "batch_size": 32, "epochs": 5}},
    "ga": {"official": {**LIKE_FINE_TUNING, "batch_size": 32, "epochs": 5}},
    "l1-sparse": {"official": {"batch_size": 32, "epochs": 5}},
    "gdr": {"official": {"learning_rate": 1e-5, "batch_size": 32}},
    "two-stage": {"released": TWO_STAGE, "paper": TWO_STAGE},
    "pgd": {"released": TWO_STAGE, "paper": TWO_STAGE},
    "unweave": {"default": {"batch_size": 32, "remote_batch": 64, "forget_batch": 64, "target": FORGOTTEN}},
}
SMALL_TWO_STAGE = {
    **TWO_STAGE,
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
