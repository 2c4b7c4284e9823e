"""Forget quality: whether truth ratios on forget questions could be those of a retrained model (TOFU).

It is the p-value of a two-sample Kolmogorov–Smirnov test. With 40 questions the test has little power, so the statistic
itself, the largest gap between the two distributions, is reported too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unweave.evaluation.answer_sheets import Values


@dataclass(frozen=True)
class ForgetQuality:
    """The p-value and the statistic of the test."""

    p_value: float
    statistic: float

    @property
    def log10(self) -> float:
        """The logarithm of the p-value; −308 for a p-value that rounds to 0."""
        return math.log10(self.p_value) if self.p_value > 0 else -308.0


def forget_quality(ratios: Values, retrained: Values) -> ForgetQuality:
    """Compare truth ratios of an unlearned and a retrained model on the same forget questions.

    >>> import numpy as np
    >>> found = forget_quality(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.5, 0.6, 0.7, 0.8]))
    >>> found.statistic, round(found.p_value, 4)
    (1.0, 0.0286)
    """
    from scipy.stats import ks_2samp

    found = ks_2samp(ratios, retrained)
    return ForgetQuality(float(found.pvalue), float(found.statistic))
