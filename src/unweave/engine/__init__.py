"""The engine runs phases: a method says what one step does, the engine does everything around it.

A phase is a loop of steps over a `Workbench` (the model being changed, its data on the device, its losses and
gradients). The engine keeps the history, shows progress, writes checkpoints and resumes from them.
"""

from unweave.engine.batches import Batches
from unweave.engine.checkpoint import Checkpoints
from unweave.engine.computing import Computing
from unweave.engine.cost import Cost
from unweave.engine.guard import CollapseError, Guard, Limits
from unweave.engine.history import History
from unweave.engine.loop import run_phases
from unweave.engine.phase import Logged, Phase
from unweave.engine.workbench import Workbench

__all__ = [
    "Batches",
    "Checkpoints",
    "CollapseError",
    "Computing",
    "Cost",
    "Guard",
    "History",
    "Limits",
    "Logged",
    "Phase",
    "Workbench",
    "run_phases",
]
