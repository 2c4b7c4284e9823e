"""The engine runs phases: a method says what one step does, the engine does everything around it.

A phase is a loop of steps over a `Workbench` (the model being changed, its data on the device, its losses and
gradients). The engine keeps the history, shows progress, writes checkpoints and resumes from them.
"""

from unweave.engine.batches import Batches, derive_seed
from unweave.engine.best import Best
from unweave.engine.callbacks import (
    Callback,
    Checkpoints,
    Note,
    Progress,
    Running,
    ScoreOn,
    StopWhen,
    of_kind,
    require_callbacks,
)
from unweave.engine.checkpoints import CheckpointFolder
from unweave.engine.compiling_ahead import write_code
from unweave.engine.compute import Compute
from unweave.engine.cost import Cost
from unweave.engine.forward import Forward
from unweave.engine.guard import CollapseError, Guard, Limits, advice_on
from unweave.engine.held_back import HeldBack, look
from unweave.engine.history import History
from unweave.engine.loop import run_phases
from unweave.engine.optimizers import OptimizerName, make_optimizer
from unweave.engine.phase import Logged, Phase
from unweave.engine.progress_line import ProgressLine, make_bar
from unweave.engine.scaled_steps import add, metric, relative_length, remember, weight_scales
from unweave.engine.tracking import Track
from unweave.engine.watch import Watch
from unweave.engine.workbench import Workbench

__all__ = [
    "Batches",
    "Best",
    "Callback",
    "CheckpointFolder",
    "Checkpoints",
    "CollapseError",
    "Compute",
    "Cost",
    "Forward",
    "Guard",
    "HeldBack",
    "History",
    "Limits",
    "Logged",
    "Note",
    "OptimizerName",
    "Phase",
    "Progress",
    "ProgressLine",
    "Running",
    "ScoreOn",
    "StopWhen",
    "Track",
    "Watch",
    "Workbench",
    "add",
    "advice_on",
    "derive_seed",
    "look",
    "make_bar",
    "make_optimizer",
    "metric",
    "of_kind",
    "relative_length",
    "remember",
    "require_callbacks",
    "run_phases",
    "weight_scales",
    "write_code",
]
