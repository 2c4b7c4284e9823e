"""The verdict on a run: forgotten or not, kept or not, at what price, and beside a model that never saw the data."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from unweave.engine import Cost
from unweave.errors import UsageError, as_number
from unweave.evaluation import Metric, NeverSeen, Scores

FORGOTTEN = 0.01  # share of the forget samples of the training data that may still be recognised
KEPT = 0.02  # accuracy that kept data may lose
HARDLY = 0.1  # test data must be recognised this well, beside training data, to tell what was kept
NEAR = 0.05  # distance to the share that a model which never saw the samples recognises
ANSWER = {True: "yes", False: "no", None: "not known"}

Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a model forgot what it had to, and kept the rest.

    Attributes:
        forgotten: Whether at most 1% of the forget training samples are recognised. None: it cannot be told.
        kept: Whether adjacent and remote data lost at most 2 points of accuracy, on test data if there is some of which
            the original recognises a tenth of what it recognises of training data. None: it cannot be told.
        rows: Accuracy before and after, for every part of the data and subset.
        cost: What the run took.
        goal: ``"erase"``, or ``"retrain"`` if the run was to give a model as if never trained on the forget data.
        never_seen: What a model that never saw the forget data recognises of it.
        kept_samples: Samples of the kept training data; 0 if unknown.
        trained_epochs: Passes over the data that the training of the original took. None: unknown.

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
    goal: Literal["erase", "retrain"] = "erase"
    never_seen: NeverSeen | None = None
    kept_samples: int = 0
    trained_epochs: float | None = None

    @classmethod
    def of(cls, scores: Scores, cost: Cost, **known: Any) -> Verdict:
        """Return the verdict on these scores, with what else is known about the run."""
        rows = tuple(_row(metric, scores) for metric in scores.metrics if _is_accuracy(metric))
        train_forget = next((row for row in rows if _place(row) == ("train", "forget")), None)
        forgotten = None if train_forget is None else bool(train_forget["after"] <= FORGOTTEN)
        losses = [_loss(row) for row in _judged(rows)]
        return cls(forgotten=forgotten, kept=max(losses) <= KEPT if losses else None, rows=rows, cost=cost, **known)

    @property
    def as_if_never_trained(self) -> bool | None:
        """Whether about as many forget samples are recognised as by a model that never saw them. None: unknown.

        About as many are those within 5 points, or within two standard errors if there are few samples.
        """
        row, share = self._forget, self.never_seen.share if self.never_seen else None
        if row is None or share is None:
            return None
        return bool(abs(row["after"] - share) <= max(NEAR, _noise(row)))

    @property
    def reached(self) -> bool | None:
        """Whether the run reached its goal: to erase, or a model as if never trained on the forget data."""
        return self.forgotten if self.goal == "erase" else self.as_if_never_trained

    @property
    def passes(self) -> float | None:
        """The sample gradients of the run, in passes over the kept training data. None: unknown."""
        return self.cost.sample_gradients / self.kept_samples if self.kept_samples else None

    @property
    def retraining_is_cheaper(self) -> bool | None:
        """Whether training again without the forget data takes fewer sample gradients than the run. None: unknown."""
        if self.passes is None or self.trained_epochs is None:
            return None
        return self.trained_epochs < self.passes

    def beside_training(self, epochs: float) -> Verdict:
        """Return the verdict with the number of epochs that the original was trained for.

        Args:
            epochs: Passes over the training data.

        Returns:
            The verdict. It says whether retraining would be cheaper.

        Raises:
            UsageError: It is not a number above 0.

        >>> cost = Cost(seconds=1.5, sample_gradients=640)
        >>> verdict = Verdict(forgotten=None, kept=None, rows=(), cost=cost, kept_samples=100)
        >>> verdict.beside_training(epochs=3).retraining_is_cheaper
        True
        """
        return replace(self, trained_epochs=positive_epochs(epochs))

    @property
    def warnings(self) -> dict[str, str]:
        """What went wrong, in sentences, by subset. Losses that may be chance are left out."""
        found = {}
        if (row := self._forget) is not None and self.reached is False:
            found["forget"] = f"The verdict: {self._about_forget(row)}"
        for row in _judged(self.rows):
            if _loss(row) > max(KEPT, _noise(row)):
                found[row["subset"]] = (
                    f"The verdict: {row['split']} {row['subset']} accuracy fell from {row['before']:.1%} to "
                    f"{row['after']:.1%}."
                )
        return found

    @property
    def _forget(self) -> Mapping[str, Any] | None:
        return next((row for row in self.rows if _place(row) == ("train", "forget")), None)

    def __str__(self) -> str:
        seen = [str(self.never_seen)] if self.never_seen else []
        return "\n".join([self._forgotten(), *seen, *self._kept(), self._cost()])

    @property
    def in_short(self) -> str:
        """Whether the goal was reached and the rest kept, without numbers: those may tell who was forgotten."""
        return f"{self._reached} Kept: {ANSWER[self.kept]}."

    @property
    def _reached(self) -> str:
        return f"{'Forgotten' if self.goal == 'erase' else 'As if never trained'}: {ANSWER[self.reached]}."

    def _forgotten(self) -> str:
        """Return whether the goal was reached, and in which numbers."""
        return self._reached + (f" {self._about_forget(row)}" if (row := self._forget) else "")

    def _about_forget(self, row: Mapping[str, Any]) -> str:
        before = "" if row["before"] is None else f" ({row['before']:.1%} before)"
        return f"{row['after']:.1%} of the {row['samples']} forget training samples are recognised{before}."

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
        words = f"Cost: {self.cost.sample_gradients:,} sample gradients, {self.cost.seconds:.1f} s"
        if self.passes is None:
            return f"{words}."
        words += f"; as much as {self.passes:.1f} passes over the {self.kept_samples:,} kept samples."
        if self.trained_epochs is None:
            return words
        cheaper = "Retraining would be cheaper: the" if self.retraining_is_cheaper else "The"
        return f"{words} {cheaper} original was trained for {self.trained_epochs:g}."

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values."""
        return {
            "forgotten": self.forgotten,
            "kept": self.kept,
            "goal": self.goal,
            "as_if_never_trained": self.as_if_never_trained,
            "never_seen": self.never_seen.to_dict() if self.never_seen else None,
            "rows": [dict(row) for row in self.rows],
            "cost": self.cost.to_dict(),
            "passes": self.passes,
            "trained_epochs": self.trained_epochs,
            "retraining_is_cheaper": self.retraining_is_cheaper,
            "warnings": list(self.warnings.values()),
        }

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def positive_epochs(value: Any) -> float:
    """Return the number of epochs that a model was trained for, or raise a `UsageError`.

    >>> positive_epochs(-1)
    Traceback (most recent call last):
    unweave.errors.UsageError: trained_epochs is -1.0, but must be above 0.
    """
    found = as_number("trained_epochs", value)
    if found <= 0:
        raise UsageError(f"trained_epochs is {found}, but must be above 0.")
    return found


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


def _place(row: Mapping[str, Any]) -> Place:
    return row["split"], row["subset"]


def _loss(row: Mapping[str, Any]) -> float:
    return float(row["before"] - row["after"])


def _noise(row: Mapping[str, Any]) -> float:
    """Return two standard errors of a share, at most."""
    return 1 / math.sqrt(row["samples"])


def _judged(rows: tuple[Mapping[str, Any], ...]) -> list[Mapping[str, Any]]:
    """Return the rows of kept data: of each subset test data, if there is some that can tell, else training data.

    Test data of which the original recognises hardly any, beside training data, cannot tell: a language model does not
    know facts that it was not trained on.
    """
    found = []
    for subset in ("adjacent", "remote"):
        kept = {row["split"]: row for row in rows if row["subset"] == subset and row["before"] is not None}
        test, train = kept.get("test"), kept.get("train")
        if test is not None and (train is None or test["before"] >= HARDLY * train["before"]):
            found.append(test)
        elif train is not None:
            found.append(train)
    return found
