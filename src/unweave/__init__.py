"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave
>>> sorted(unweave.__all__)[:3]
['BeforeStage2', 'CollapseError', 'Limits']
"""

from unweave import losses, projection
from unweave._version import __version__
from unweave.engine import CollapseError, Limits
from unweave.errors import RunError, RunWarning, Stopped, UsageError
from unweave.evaluation import BeforeStage2, Metric, RelearnSettings, Scores, Watch, evaluate
from unweave.record import Request
from unweave.run import Result, load_weights, unlearn
from unweave.split import Split

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
