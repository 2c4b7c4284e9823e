"""Many runs in one folder: benchmark × methods × seeds, survived by interruption, ending in one table."""

from unweave.study.cells import Cell, each_once, no_profile, plan, profile_of
from unweave.study.presets import PRESETS, Preset, describe_preset, find_presets, preset_cells
from unweave.study.progress import Progress
from unweave.study.store import Store
from unweave.study.study import run_study
from unweave.study.workers import run_workers

__all__ = [
    "PRESETS",
    "Cell",
    "Preset",
    "Progress",
    "Store",
    "describe_preset",
    "each_once",
    "find_presets",
    "no_profile",
    "plan",
    "preset_cells",
    "profile_of",
    "run_study",
    "run_workers",
]
