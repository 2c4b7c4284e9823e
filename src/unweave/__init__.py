"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave
>>> sorted(unweave.__all__)[:3]
['BeforeStage2', 'Metric', 'RelearnSettings']
"""

from unweave import losses, projection
from unweave._version import __version__
from unweave.errors import RunError, Stopped, UsageError
from unweave.evaluation import BeforeStage2, Metric, RelearnSettings, Scores, Watch, evaluate
from unweave.run import Result, load_weights, unlearn
from unweave.split import Split

__all__ = [
    "BeforeStage2",
    "Metric",
    "RelearnSettings",
    "Result",
    "RunError",
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
