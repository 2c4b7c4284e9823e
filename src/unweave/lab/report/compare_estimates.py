"""A mean over several studies, with its interval and the p-value of a paired test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from unweave.lab.report.measures import number

LEVEL = 0.95
ROUNDING = 1e-12  # differences of accuracies that are equal but for rounding are nearer than this


class Estimate(NamedTuple):
    """A mean over studies, how far its interval reaches to both sides (None for one value), and p of a paired test.

    There is no p where the values do not spread: equal differences say nothing about chance.
    """

    mean: float
    reach: float | None = None
    p: float | None = None
    studies: int = 1  # that it is over
    runs: int = 1  # in all of them together

    def text(self, metric: str, *, signed: bool = False) -> str:
        """Return it for a person.

        >>> Estimate(0.025, 0.01, 0.003).text("accuracy", signed=True)
        '+2.5±1.0 p=0.003'
        """
        words = f"{'+' if signed and self.mean > 0 else ''}{number(self.mean, metric)}"
        words += "" if self.reach is None else f"±{number(self.reach, metric)}"
        return words if self.p is None else f"{words} p={self.p:.2g}"


def estimate(values: Sequence[float], *, paired: bool = False) -> Estimate | None:
    """Return mean and interval of some values; where they are paired differences, the p-value too.

    >>> found = estimate([0.1, 0.2, 0.3], paired=True)
    >>> round(found.mean, 3), round(found.reach, 3), round(found.p, 3)
    (0.2, 0.248, 0.074)
    >>> estimate([0.5]).reach, estimate([0.5, 0.5], paired=True).reach, estimate([0.5, 0.5], paired=True).p
    (None, 0.0, None)
    """
    from scipy import stats

    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Estimate(mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(count)
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * error
    if not paired or deviation <= ROUNDING:
        return Estimate(mean, reach)
    return Estimate(mean, reach, float(2 * stats.t.sf(abs(mean) / error, count - 1)))
