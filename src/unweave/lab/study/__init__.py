"""Many runs in one folder: benchmark × methods × seeds. A study survives interruptions and ends in one table."""

from unweave.lab.study.cell_progress import CellProgress, in_words
from unweave.lab.study.cells import REFERENCES, Cell, can_be_tuned, each_once, no_profile, plan, profile_of
from unweave.lab.study.mps import shared_gpu
from unweave.lab.study.originals import NotYet, Originals, tidy_models
from unweave.lab.study.packing import Packing, packed
from unweave.lab.study.pool import dead, started, still_running
from unweave.lab.study.presets import PRESETS, Preset, describe_preset, find_presets, preset_cells
from unweave.lab.study.store import Store
from unweave.lab.study.study import PATIENCE, run_study
from unweave.lab.study.study_files import read_history, read_runs, read_times
from unweave.lab.study.workers import run_workers

__all__ = [
    "PATIENCE",
    "PRESETS",
    "REFERENCES",
    "Cell",
    "CellProgress",
    "NotYet",
    "Originals",
    "Packing",
    "Preset",
    "Store",
    "can_be_tuned",
    "dead",
    "describe_preset",
    "each_once",
    "find_presets",
    "in_words",
    "no_profile",
    "packed",
    "plan",
    "preset_cells",
    "profile_of",
    "read_history",
    "read_runs",
    "read_times",
    "run_study",
    "run_workers",
    "shared_gpu",
    "started",
    "still_running",
    "tidy_models",
]
