"""Probability of the true answer: exp(−m), m the mean loss of its tokens; with options, against that of wrong answers.

TOFU, open-unlearning `probability` and `probability_w_options`: p(y) / (p(y) + Σ p(wrong) + 1e-10).
"""

from __future__ import annotations

import numpy as np

from unweave.evaluation.answer_sheets import AnswerSheet, Values

TINY = 1e-10


def probabilities(sheet: AnswerSheet) -> Values:
    """Return the probability of every true answer: the geometric mean of its tokens' probabilities."""
    found: Values = np.exp(-sheet.losses)
    return found


def probabilities_among_options(sheet: AnswerSheet) -> Values:
    """Return the probability of every true answer among the wrong ones that are given with it."""
    own = probabilities(sheet)
    wrong = np.array([np.exp(-np.array(losses)).sum() for losses in sheet.wrong])
    found: Values = own / (own + wrong + TINY)
    return found
