"""The verdict on a run: forgotten or not, kept or not, and at what price."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unweave.engine import Cost
from unweave.evaluation import Metric, Scores

FORGOTTEN = 0.01  # share of the forget samples of the training data that may still be recognised
KEPT = 0.02  # accuracy that kept data may lose


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a model forgot what it had to, and kept the rest.

    Attributes:
        forgotten: Whether at most 1% of the forget training samples are recognised. None: it cannot be told.
        kept: Whether adjacent and remote data lost at most 2 points of accuracy, on test data if there is some. None:
            it cannot be told.
        rows: Accuracy before and after, for every part of the data and subset.
        cost: What the run took.

    >>> row = {"split": "train", "subset": "forget", "before": 1.0, "after": 0.0, "samples": 8}
    >>> print(Verdict(forgotten=True, kept=None, rows=(row,), cost=Cost(seconds=1.5, sample_gradients=640)))
    Forgotten: yes. 0.0% of the 8 forget training samples are recognised (100.0% before).
    Kept: not known.
    Cost: 640 sample gradients, 1.5 s.
    """

    forgotten: bool | None
    kept: bool | None
    rows: tuple[Mapping[str, Any], ...]
    cost: Cost

    @classmethod
    def of(cls, scores: Scores, cost: Cost) -> Verdict:
        """Return the verdict on these scores."""
        rows = tuple(_row(metric, scores) for metric in scores.metrics if _is_accuracy(metric))
        train_forget = next((row for row in rows if _place(row) == ("train", "forget")), None)
        forgotten = None if train_forget is None else bool(train_forget["after"] <= FORGOTTEN)
        changes = [row["before"] - row["after"] for row in _judged(rows) if row["before"] is not None]
        return cls(forgotten=forgotten, kept=max(changes) <= KEPT if changes else None, rows=rows, cost=cost)

    def __str__(self) -> str:
        return "\n".join([self._forgotten(), *self._kept(), self._cost()])

    def _forgotten(self) -> str:
        row = next((row for row in self.rows if _place(row) == ("train", "forget")), None)
        if row is None:
            return "Forgotten: not known."
        before = "" if row["before"] is None else f" ({row['before']:.1%} before)"
        answer = "yes" if self.forgotten else "no"
        return (
            f"Forgotten: {answer}. {row['after']:.1%} of the {row['samples']} forget training samples are "
            f"recognised{before}."
        )

    def _kept(self) -> list[str]:
        if self.kept is None:
            return ["Kept: not known."]
        lines = [f"Kept: {'yes' if self.kept else 'no'}. Accuracy before and after:"]
        for row in self.rows:
            if row["subset"] != "forget" and row["before"] is not None:
                place = f"{row['split']} {row['subset']}"
                lines.append(f"  {place:<16}{row['before']:>8.1%} → {row['after']:.1%}")
        return lines

    def _cost(self) -> str:
        return f"Cost: {self.cost.sample_gradients:,} sample gradients, {self.cost.seconds:.1f} s."

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values."""
        rows = [dict(row) for row in self.rows]
        return {"forgotten": self.forgotten, "kept": self.kept, "rows": rows, "cost": self.cost.to_dict()}

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _is_accuracy(metric: Metric) -> bool:
    return metric.metric == "accuracy" and bool(metric.subset) and metric.value is not None


def _row(metric: Metric, scores: Scores) -> dict[str, Any]:
    samples = scores[metric.split][metric.subset]["samples"]
    return {
        "split": metric.split,
        "subset": metric.subset,
        "before": metric.before,
        "after": metric.value,
        "samples": samples,
    }


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["split"], row["subset"]


def _judged(rows: tuple[Mapping[str, Any], ...]) -> list[Mapping[str, Any]]:
    """Return the rows of kept data: on test data if there is some, otherwise on training data."""
    kept = [row for row in rows if row["subset"] in ("adjacent", "remote")]
    return [row for row in kept if row["split"] == "test"] or kept
