"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave as uw
>>> sorted(uw.__all__)[:3]
['BeforeStage2', 'Best', 'Binary']
"""

from unweave import losses, projection, record
from unweave._version import __version__
from unweave.api import Result, Split, Verdict, unlearn
from unweave.engine import (
    Best,
    Callback,
    Checkpoints,
    CollapseError,
    Compute,
    History,
    Limits,
    Note,
    Progress,
    ScoreOn,
    StopWhen,
    Track,
    Watch,
)
from unweave.errors import RunError, RunWarning, Stopped, UsageError
from unweave.evaluation import BeforeStage2, Inspection, Metric, RelearnSettings, Scores, Shortfall, evaluate
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
from unweave.tasks import Binary, Classification, MultiLabel, OwnLoss, Regression, Task

__all__ = [
    "GDR",
    "PGD",
    "SSD",
    "BeforeStage2",
    "Best",
    "Binary",
    "Callback",
    "Checkpoints",
    "Classification",
    "CollapseError",
    "Compute",
    "Delete",
    "FineTune",
    "GradientAscent",
    "History",
    "Inspection",
    "L1Sparse",
    "Limits",
    "MUNBa",
    "Metric",
    "MultiLabel",
    "Note",
    "Original",
    "OwnLoss",
    "Progress",
    "Regression",
    "RelearnSettings",
    "Request",
    "Result",
    "Retrain",
    "RunError",
    "RunWarning",
    "SalUn",
    "ScoreOn",
    "Scores",
    "Scrub",
    "Shortfall",
    "Split",
    "StopWhen",
    "Stopped",
    "Task",
    "Track",
    "TwoStage",
    "Unweave",
    "UsageError",
    "Verdict",
    "Watch",
    "__version__",
    "evaluate",
    "load_weights",
    "losses",
    "projection",
    "record",
    "unlearn",
]
