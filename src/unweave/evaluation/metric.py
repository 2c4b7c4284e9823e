"""A measured number with its subset, interval, direction, and the value of a retrained model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

Better = Literal["lower", "higher", "reference"]
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A value and its interval. The bounds are None if no interval was computed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number for one subset or, with empty ``split`` and ``subset``, for the whole model.

    Attributes:
        metric: The name of the number.
        value: The number. None if it cannot be computed.
        better: The good direction: lower, higher, or nearest to ``reference``.
        split: ``"train"`` or ``"test"``.
        subset: The subset, such as ``"forget"``.
        low: The lower end of the interval.
        high: The upper end of the interval.
        reference: The value of a retrained model. For a distance to retraining: the value between two retrained models.
        before: The value of the original model.
        note: The reason if there is no value; otherwise a caveat, if any.

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
        """Return a metric that cannot be computed, with the reason."""
        return cls(metric=name, value=None, better=better, split=split, subset=subset, note=note)

    @property
    def place(self) -> tuple[str, str, str]:
        """Split, subset and name: the key for comparing models."""
        return (self.split, self.subset, self.metric)

    def beside(self, *, reference: float | None, before: float | None) -> Metric:
        """Return the metric with the values of a retrained model and the original. Values already set stay."""
        return replace(
            self,
            reference=reference if self.reference is None else self.reference,
            before=before if self.before is None else self.before,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a plain row for JSON, with the columns of a study's table. Unknown entries are omitted."""
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
    """Return the mean of non-negative values, with its Student interval (none for a single sample).

    >>> [round(number, 3) for number in mean(np.array([1.0, 2.0, 3.0]))]
    [2.0, 0.0, 4.484]
    """
    from scipy.stats import sem, t

    centre = float(values.mean())
    if len(values) < 2:
        return Estimate(centre)
    half = float(sem(values) * t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return Estimate(centre, max(0.0, centre - half), centre + half)
