"""A mean over several studies, with its interval and the p-value of a paired test, corrected for many tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from unweave.lab.report.measures import number

LEVEL = 0.95
ROUNDING = 1e-12  # accuracies that differ by less are equal up to rounding


class MeanOverStudies(NamedTuple):
    """A mean over studies, the half width of its interval (None for a single value), and p of a paired test.

    p is None where nothing was tested, and where all values are equal: equal differences say nothing about chance.
    ``holm`` is p corrected for all tests of its table, and the one that people are shown.
    """

    mean: float
    reach: float | None = None
    p: float | None = None
    studies: int = 1  # number of studies
    runs: int = 1  # number of runs in all studies together
    holm: float | None = None

    def text(self, metric: str, *, signed: bool = False) -> str:
        """Return the estimate as a person reads it.

        >>> MeanOverStudies(0.025, 0.01, 0.003, holm=0.03).text("accuracy", signed=True)
        '+2.5±1.0 p=0.03'
        """
        words = f"{'+' if signed and self.mean > 0 else ''}{number(self.mean, metric)}"
        words += "" if self.reach is None else f"±{number(self.reach, metric)}"
        return words if self.holm is None else f"{words} p={self.holm:.2g}"


def estimate(values: Sequence[float], *, paired: bool = False) -> MeanOverStudies | None:
    """Return the mean of some values with its interval and, for paired differences, the p-value.

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
        return MeanOverStudies(mean)
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(count)
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * error
    if not paired or deviation <= ROUNDING:
        return MeanOverStudies(mean, reach)
    return MeanOverStudies(mean, reach, float(2 * stats.t.sf(abs(mean) / error, count - 1)))


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method, in the same order: they hold for all of these tests together.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, least = dict.fromkeys(range(len(values)), 1.0), 0.0
    for done, place in enumerate(sorted(corrected, key=lambda place: values[place])):
        least = max(least, min(1.0, (len(values) - done) * values[place]))
        corrected[place] = least
    return list(corrected.values())
