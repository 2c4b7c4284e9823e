"""One measured number: where it was measured, how sure it is, which way is better, and what a retrained model gets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

Better = Literal["lower", "higher", "reference"]
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A value and its interval; without bounds where none was asked for."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of one subset (or, with empty ``split`` and ``subset``, of the whole model).

    ``better`` says which way is good: lower, higher, or nearest to the ``reference``, which is what a retrained
    model gets (for a distance to retrain: what two retrained models get). ``before`` is the original model's value.
    ``value`` is None where the metric cannot be computed, and then ``note`` says why; otherwise ``note`` says what a
    reader must know.

    >>> Metric.absent("tow", better="higher", note="No reference was given.").to_dict()
    {'split': '', 'subset': '', 'metric': 'tow', 'value': None, 'better': 'higher', 'note': 'No reference was given.'}
    """

    metric: str
    value: float | None
    better: Better
    split: str = ""
    subset: str = ""
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    before: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls, name: str, estimate: Estimate, *, better: Better, split: str = "", subset: str = "", note: str = ""
    ) -> Metric:
        """Return the metric of an estimate."""
        return cls(
            metric=name,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            better=better,
            split=split,
            subset=subset,
            note=note,
        )

    @classmethod
    def absent(cls, name: str, *, better: Better, note: str, split: str = "", subset: str = "") -> Metric:
        """Return a metric that could not be computed, with the reason."""
        return cls(metric=name, value=None, better=better, split=split, subset=subset, note=note)

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it was measured, and what: the key under which models are compared."""
        return (self.split, self.subset, self.metric)

    def beside(self, *, reference: float | None, before: float | None) -> Metric:
        """Return the same metric with what a retrained model and the original get; a value already there stays."""
        return replace(
            self,
            reference=reference if self.reference is None else self.reference,
            before=before if self.before is None else self.before,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a plain row for JSON: the columns of a study's table; what is not known is left out."""
        found = asdict(self)
        row = {"split": found.pop("split"), "subset": found.pop("subset"), "metric": found.pop("metric")}
        row["value"] = found.pop("value")
        return row | {name: entry for name, entry in found.items() if entry not in (None, "")}


def share(hits: int, count: int) -> Estimate:
    """Return a share of samples with its Wilson interval.

    >>> [round(number, 3) for number in share(50, 100)]
    [0.5, 0.404, 0.596]
    """
    from scipy.stats import binomtest

    interval = binomtest(hits, count).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(hits / count, float(interval.low), float(interval.high))


def mean(values: np.ndarray[Any, Any]) -> Estimate:
    """Return a mean over samples of what is never negative, with its Student interval (none for a single sample).

    >>> [round(number, 3) for number in mean(np.array([1.0, 2.0, 3.0]))]
    [2.0, 0.0, 4.484]
    """
    from scipy.stats import sem, t

    centre = float(values.mean())
    if len(values) < 2:
        return Estimate(centre)
    half = float(sem(values) * t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return Estimate(centre, max(0.0, centre - half), centre + half)
