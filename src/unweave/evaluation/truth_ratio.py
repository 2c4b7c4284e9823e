"""Truth ratio: how likely wrong answers are, compared with a paraphrase of the true one (TOFU).

R = exp(−mean over wrong answers of m) / (exp(−m of the paraphrase) + 1e-10), m the mean loss of an answer's tokens.
Where a question has no paraphrase, the answer itself takes its place. The mean over wrong answers is of losses, as in
the code.
"""

from __future__ import annotations

import numpy as np

from unweave.evaluation.answer_probability import TINY
from unweave.evaluation.answer_sheets import AnswerSheet, Values


def truth_ratios(sheet: AnswerSheet) -> Values:
    """Return R of every question."""
    right, wrong = _probabilities(sheet)
    found: Values = wrong / (right + TINY)
    return found


def indifference(ratios: Values) -> Values:
    """Return min(R, 1/R), for forget data: 1 where wrong answers are as likely as the true one.

    >>> indifference(np.array([0.5, 2.0, 1.0])).round(3).tolist()
    [0.5, 0.5, 1.0]
    """
    found: Values = np.minimum(ratios, 1 / (ratios + TINY))
    return found


def truthfulness(ratios: Values) -> Values:
    """Return max(0, 1 − R), for data that is kept: 1 where wrong answers have no probability.

    >>> truthfulness(np.array([0.25, 2.0])).tolist()
    [0.75, 0.0]
    """
    found: Values = np.maximum(0, 1 - ratios)
    return found


def knowledge(sheet: AnswerSheet) -> Values:
    """Return right / (right + wrong), the form in open-unlearning's meta-evaluation."""
    right, wrong = _probabilities(sheet)
    found: Values = right / (right + wrong + TINY)
    return found


def _probabilities(sheet: AnswerSheet) -> tuple[Values, Values]:
    right = np.array(sheet.paraphrase) if sheet.paraphrase else sheet.losses
    return np.exp(-right), np.exp(-np.array([np.mean(losses) for losses in sheet.wrong]))
