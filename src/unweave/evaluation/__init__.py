"""Did it really forget? Scores for any model and split, however the model was unlearned.

Each question has its file: ``accuracy``, ``membership``, ``rmia``, ``ulira``, ``distances``, ``relearn``, ``probe``,
``bounds`` and, as a summary, ``goals``. `evaluate` asks them.

Language models have questions of their own: ``answer_probability``, ``rouge``, ``truth_ratio``, ``forget_quality``,
``model_utility``, ``memorisation``, ``answer_attacks``, ``four_bits``. `ask` lets a model answer, `score_answers` asks
them about its answers.
"""

from unweave.evaluation import attack
from unweave.evaluation.accuracy import accuracy_and_losses
from unweave.evaluation.answer_scores import AnswerScores, ask, load_answers, save_answers, score_answers
from unweave.evaluation.answer_sheets import AnswerSheet
from unweave.evaluation.attack import FEWEST
from unweave.evaluation.bounds import (
    BeforeStage2,
    Certificate,
    ForgettingBound,
    Shortfall,
    certificate_entry,
    forgetting_bound,
    make_certificate,
    shortfall_bound,
)
from unweave.evaluation.distances import klom, tug_of_war
from unweave.evaluation.entanglement import Entanglement, entanglement
from unweave.evaluation.evaluate import QUESTIONS, evaluate
from unweave.evaluation.features import features
from unweave.evaluation.four_bits import rounded_weights
from unweave.evaluation.goals import Goal
from unweave.evaluation.inspection import FEW_ADJACENT, Inspection, inspected
from unweave.evaluation.metric import Metric
from unweave.evaluation.never_seen import NeverSeen, never_seen
from unweave.evaluation.open_unlearning_files import Logs, read_logs, write_logs
from unweave.evaluation.predictions import Look, Observed, Predictions, array, observe, predict
from unweave.evaluation.relearn import Relearning, RelearnSettings, relearn
from unweave.evaluation.rmia import confidences, log_ratios, relative_scores
from unweave.evaluation.scores import Scores
from unweave.evaluation.ulira import balanced_halves, left_out_ratios, log_likelihood_ratio, told_right
from unweave.evaluation.votes import Votes, votes_by, votes_in

__all__ = [
    "FEWEST",
    "FEW_ADJACENT",
    "QUESTIONS",
    "AnswerScores",
    "AnswerSheet",
    "BeforeStage2",
    "Certificate",
    "Entanglement",
    "ForgettingBound",
    "Goal",
    "Inspection",
    "Logs",
    "Look",
    "Metric",
    "NeverSeen",
    "Observed",
    "Predictions",
    "RelearnSettings",
    "Relearning",
    "Scores",
    "Shortfall",
    "Votes",
    "accuracy_and_losses",
    "array",
    "ask",
    "attack",
    "balanced_halves",
    "certificate_entry",
    "confidences",
    "entanglement",
    "evaluate",
    "features",
    "forgetting_bound",
    "inspected",
    "klom",
    "left_out_ratios",
    "load_answers",
    "log_likelihood_ratio",
    "log_ratios",
    "make_certificate",
    "never_seen",
    "observe",
    "predict",
    "read_logs",
    "relative_scores",
    "relearn",
    "rounded_weights",
    "save_answers",
    "score_answers",
    "shortfall_bound",
    "told_right",
    "tug_of_war",
    "votes_by",
    "votes_in",
    "write_logs",
]
