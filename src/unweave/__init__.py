"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

Names are imported on first use, so that ``unweave --help`` does not load torch.

>>> import unweave as uw
>>> sorted(uw.__all__)[:3]
['Adaptive', 'AltPO', 'AnswerScores']
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from unweave._version import __version__
from unweave.errors import RunError, RunWarning, Stopped, UsageError

if TYPE_CHECKING:  # the same names as in _ROOMS, for editors and type checkers
    from unweave import losses, projection, record
    from unweave.api import Result, Split, Verdict, unlearn, warm
    from unweave.data import PaddingCollator, answers, packed
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
    from unweave.evaluation import (
        AnswerScores,
        AnswerSheet,
        BeforeStage2,
        Inspection,
        Logs,
        Metric,
        RelearnSettings,
        Scores,
        Shortfall,
        ask,
        evaluate,
        load_answers,
        read_logs,
        rounded_weights,
        save_answers,
        score_answers,
        write_logs,
    )
    from unweave.methods import (
        CEU,
        DPO,
        GDR,
        NPO,
        PDU,
        PGD,
        RMU,
        SSD,
        UNDIAL,
        WGA,
        Adaptive,
        AltPO,
        Delete,
        FineTune,
        GradDiff,
        GradientAscent,
        IdkDPO,
        L1Sparse,
        MUNBa,
        Original,
        Retrain,
        SalUn,
        SatImp,
        Scrub,
        SimNPO,
        TwoStage,
        Unweave,
    )
    from unweave.requests import Request
    from unweave.runs import SaveWith, load_weights
    from unweave.tasks import Binary, Classification, Language, MultiLabel, OwnLoss, Regression, Task

__all__ = [
    "CEU",
    "DPO",
    "GDR",
    "NPO",
    "PDU",
    "PGD",
    "RMU",
    "SSD",
    "UNDIAL",
    "WGA",
    "Adaptive",
    "AltPO",
    "AnswerScores",
    "AnswerSheet",
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
    "GradDiff",
    "GradientAscent",
    "History",
    "IdkDPO",
    "Inspection",
    "L1Sparse",
    "Language",
    "Limits",
    "Logs",
    "MUNBa",
    "Metric",
    "MultiLabel",
    "Note",
    "Original",
    "OwnLoss",
    "PaddingCollator",
    "Progress",
    "Regression",
    "RelearnSettings",
    "Request",
    "Result",
    "Retrain",
    "RunError",
    "RunWarning",
    "SalUn",
    "SatImp",
    "SaveWith",
    "ScoreOn",
    "Scores",
    "Scrub",
    "Shortfall",
    "SimNPO",
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
    "answers",
    "ask",
    "evaluate",
    "load_answers",
    "load_weights",
    "losses",
    "packed",
    "projection",
    "read_logs",
    "record",
    "rounded_weights",
    "save_answers",
    "score_answers",
    "unlearn",
    "warm",
    "write_logs",
]

_ROOMS = {  # the names that are imported on first use
    "api": (
        "Result",
        "Split",
        "Verdict",
        "unlearn",
        "warm",
    ),
    "data": ("PaddingCollator", "answers", "packed"),
    "engine": (
        "Best",
        "Callback",
        "Checkpoints",
        "CollapseError",
        "Compute",
        "History",
        "Limits",
        "Note",
        "Progress",
        "ScoreOn",
        "StopWhen",
        "Track",
        "Watch",
    ),
    "evaluation": (
        "AnswerScores",
        "AnswerSheet",
        "BeforeStage2",
        "Inspection",
        "Logs",
        "Metric",
        "RelearnSettings",
        "Scores",
        "Shortfall",
        "ask",
        "evaluate",
        "load_answers",
        "read_logs",
        "rounded_weights",
        "save_answers",
        "score_answers",
        "write_logs",
    ),
    "methods": (
        "CEU",
        "DPO",
        "GDR",
        "NPO",
        "PDU",
        "PGD",
        "RMU",
        "SSD",
        "UNDIAL",
        "WGA",
        "Adaptive",
        "AltPO",
        "Delete",
        "FineTune",
        "GradDiff",
        "GradientAscent",
        "IdkDPO",
        "L1Sparse",
        "MUNBa",
        "Original",
        "Retrain",
        "SalUn",
        "SatImp",
        "Scrub",
        "SimNPO",
        "TwoStage",
        "Unweave",
    ),
    "requests": ("Request",),
    "runs": ("SaveWith", "load_weights"),
    "tasks": (
        "Binary",
        "Classification",
        "Language",
        "MultiLabel",
        "OwnLoss",
        "Regression",
        "Task",
    ),
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
