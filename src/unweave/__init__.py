"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave as uw
>>> sorted(uw.__all__)[:3]
['BeforeStage2', 'CollapseError', 'Limits']
"""

from unweave import losses, projection
from unweave._version import __version__
from unweave.api import Result, Split, unlearn
from unweave.engine import CollapseError, Limits
from unweave.errors import RunError, RunWarning, Stopped, UsageError
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
