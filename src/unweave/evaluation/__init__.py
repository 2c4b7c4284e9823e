"""Did it really forget? Scores for any model and split, with no unlearning needed."""

from unweave.evaluation.evaluate import evaluate
from unweave.evaluation.predictions import Predictions, predict
from unweave.evaluation.scores import Scores

__all__ = ["Predictions", "Scores", "evaluate", "predict"]
