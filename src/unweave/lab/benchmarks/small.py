"""Settings for ``--small``: every method runs in seconds on two cores. The numbers mean nothing."""

from __future__ import annotations

from typing import Any

from unweave.lab.benchmarks.benchmark import MethodSettings
from unweave.methods import DescentSettings, all_methods

RECIPE = DescentSettings(optimizer="adam", learning_rate=2e-3, epochs=4, batch_size=64)
TWO_STAGE = {
    "stage1_learning_rate": 2e-5,
    "stage1_remote_batch": 128,
    "stage2_learning_rate": 1e-3,
    "stage2_epochs": 3,
    "stage2_adjacent_batch": 64,
    "stage2_forget_batch": 64,
    "stage2_remote_batch": 128,
    "stage2_remote_batches": 2,
}


def small_settings() -> MethodSettings:
    """Return settings for short runs, for every method and profile."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, method in all_methods().items():
        known = {row["name"] for row in method.describe()}
        short = {"epochs": 1, "batch_size": 128, "least_steps": 0}
        short = {setting: value for setting, value in short.items() if setting in known}
        found[name] = dict.fromkeys(method.profiles, TWO_STAGE if "stage1_epochs" in known else short)
    return found
