"""Did it really forget? Scores for any model and split, with no unlearning needed.

One file a question: ``accuracy``, ``membership``, ``rmia``, ``ulira``, ``reference``, ``relearn``, ``probe``,
``certificate`` and, over all of them, ``goals``. `evaluate` asks them.
"""

from unweave.evaluation.certificate import ForgettingBound, forgetting_bound, shortfall_bound
from unweave.evaluation.evaluate import QUESTIONS, BeforeStage2, evaluate
from unweave.evaluation.goals import Goal
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import Look, Observed, Predictions, observe, predict
from unweave.evaluation.relearn import Relearning, RelearnSettings, relearn
from unweave.evaluation.scores import Scores
from unweave.evaluation.watch import Watch

__all__ = [
    "QUESTIONS",
    "BeforeStage2",
    "ForgettingBound",
    "Goal",
    "Look",
    "Metric",
    "Observed",
    "Predictions",
    "RelearnSettings",
    "Relearning",
    "Scores",
    "Watch",
    "evaluate",
    "forgetting_bound",
    "observe",
    "predict",
    "relearn",
    "shortfall_bound",
]
