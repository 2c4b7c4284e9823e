"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave as uw
>>> sorted(uw.__all__)[:3]
['BeforeStage2', 'CollapseError', 'Delete']
"""

from unweave import losses, projection
from unweave._version import __version__
from unweave.api import Result, Split, unlearn
from unweave.engine import CollapseError, Limits
from unweave.errors import RunError, RunWarning, Stopped, UsageError
from unweave.evaluation import BeforeStage2, Metric, RelearnSettings, Scores, Shortfall, Watch, evaluate
from unweave.methods import (
    GDR,
    PGD,
    SSD,
    Delete,
    FineTune,
    GradientAscent,
    L1Sparse,
    MUNBa,
    Original,
    Retrain,
    SalUn,
    Scrub,
    TwoStage,
    Unweave,
)
from unweave.record import Request
from unweave.runs import load_weights

__all__ = [
    "GDR",
    "PGD",
    "SSD",
    "BeforeStage2",
    "CollapseError",
    "Delete",
    "FineTune",
    "GradientAscent",
    "L1Sparse",
    "Limits",
    "MUNBa",
    "Metric",
    "Original",
    "RelearnSettings",
    "Request",
    "Result",
    "Retrain",
    "RunError",
    "RunWarning",
    "SalUn",
    "Scores",
    "Scrub",
    "Shortfall",
    "Split",
    "Stopped",
    "TwoStage",
    "Unweave",
    "UsageError",
    "Watch",
    "__version__",
    "evaluate",
    "load_weights",
    "losses",
    "projection",
    "unlearn",
]
