"""unweave: make a trained PyTorch model forget part of its data, and keep what looks like it.

>>> import unweave
>>> sorted(unweave.__all__)[:3]
['Result', 'RunError', 'Scores']
"""

from unweave import losses, projection
from unweave.errors import RunError, UsageError
from unweave.evaluation import Scores, evaluate
from unweave.run import Result, load_weights, unlearn
from unweave.split import Split

__version__ = "0.1.0"

__all__ = [
    "Result",
    "RunError",
    "Scores",
    "Split",
    "UsageError",
    "evaluate",
    "load_weights",
    "losses",
    "projection",
    "unlearn",
]
