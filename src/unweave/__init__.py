"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

Names are imported on first use, so that ``unweave --help`` does not load torch.

>>> import unweave as uw
>>> sorted(uw.__all__)[:3]
['BeforeStage2', 'CollapseError', 'Limits']
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from unweave._version import __version__
from unweave.errors import RunError, RunWarning, Stopped, UsageError

if TYPE_CHECKING:  # the same names as in _ROOMS, for editors and type checkers
    from unweave import losses, projection
    from unweave.api import Result, Split, unlearn
    from unweave.engine import CollapseError, Limits
    from unweave.evaluation import BeforeStage2, Metric, RelearnSettings, Scores, Watch, evaluate
    from unweave.record import Request
    from unweave.runs import load_weights

__all__ = [
    "BeforeStage2",
    "CollapseError",
    "Limits",
    "Metric",
    "RelearnSettings",
    "Request",
    "Result",
    "RunError",
    "RunWarning",
    "Scores",
    "Split",
    "Stopped",
    "UsageError",
    "Watch",
    "__version__",
    "evaluate",
    "load_weights",
    "losses",
    "projection",
    "unlearn",
]

_ROOMS = {  # the names that are imported on first use
    "api": ("Result", "Split", "unlearn"),
    "engine": ("CollapseError", "Limits"),
    "evaluation": ("BeforeStage2", "Metric", "RelearnSettings", "Scores", "Watch", "evaluate"),
    "record": ("Request",),
    "runs": ("load_weights",),
}
_HOMES = {name: f"unweave.{room}" for room, names in _ROOMS.items() for name in names}

if not TYPE_CHECKING:  # or a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name, or a room such as ``unweave.record``, on first use."""
        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif not name.startswith("_") and find_spec(f"unweave.{name}"):
            found = import_module(f"unweave.{name}")
        else:
            raise AttributeError(f"module 'unweave' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
