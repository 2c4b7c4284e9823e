"""Scores: a plain result that prints as a table and converts to JSON."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

from unweave.data import EVERY
from unweave.errors import UsageError, unknown
from unweave.evaluation.goals import Goal, collapse, goals
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import Observed
from unweave.storage import COUNT, NUMBER, OBJECT, TEXT, require_form

SCHEMA = 2
WIDTH = 80
PARTS = ("train", "test")
ARROWS = {"lower": "↓", "higher": "↑", "reference": "→"}
COLLATERAL = ("mia_svc_confidence", "mia_population_auc", "mia_rmia_auc", "mia_ulira_auc")
SHOWN = (  # rows of the printed table besides accuracy and loss; to_dict() has everything
    *COLLATERAL,
    "tow",
    "tow_mia",
    "tow_split",
    "klom",
    "prediction_total_variation",
    "loss_wasserstein",
    "weight_distance",
    "relearn_steps",
    "relearn_steps_adjacent",
    "probe_accuracy",
    "forget_bound",
)

ROW = {
    "metric": TEXT,
    "split": TEXT,
    "subset": TEXT,
    "better": TEXT,
    "note?": TEXT,
    **dict.fromkeys(("value?", "low?", "high?", "reference?", "before?"), NUMBER),
}
KEYS = {name.removesuffix("?") for name in ROW}
SUBSET = {"samples?": COUNT, "accuracy?": NUMBER, "loss?": NUMBER}
FORM = {**{f"{part}?": {"*": SUBSET} for part in PARTS}, "model?": OBJECT, "metrics?": [ROW]}


class Scores:
    """The measured numbers, such as ``scores["train"]["forget"]["accuracy"]``, a fraction in [0, 1].

    Each number is stored under its split, subset and name. Numbers of the whole model are stored under ``model``, such
    as ``scores["model"]["tow"]``. ``metrics`` adds interval, direction and reference, and the reason if a number is
    absent. ``observed`` holds the logits while the scores are in memory, ``before`` those of the original if it was
    given.

    Args:
        values: Numbers by part, subset and name.
        metrics: The numbers with interval, direction and reference.
        observed: What the model predicted.
        before: What the original predicted, if it was given.

    >>> print(Scores({"train": {"forget": {"accuracy": 0.02, "loss": 9.1, "samples": 50}}}))
             subset      samples  accuracy      loss
    train    forget           50     2.00%     9.100
    """

    def __init__(
        self,
        values: dict[str, Any],
        metrics: Sequence[Metric] = (),
        *,
        observed: Observed | None = None,
        before: Observed | None = None,
    ) -> None:
        self.values = {name: entry for name, entry in values.items() if name not in ("metrics", "goals", "collapse")}
        self.metrics, self.observed, self.before = tuple(metrics), observed, before
        for metric in self.metrics:
            if metric.value is not None and metric.subset:
                self.values.setdefault(metric.split, {}).setdefault(metric.subset, {})[metric.metric] = metric.value
            elif metric.value is not None and not metric.split:
                self.values.setdefault("model", {})[metric.metric] = metric.value

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def metric(self, name: str, split: str = "", subset: str = "") -> Metric:
        """Return a number with its interval, direction, reference and note.

        Args:
            name: The name of the number, such as ``"mia_rmia_auc"``.
            split: ``"train"`` or ``"test"``; empty for numbers of the whole model.
            subset: The subset, such as ``"forget"``; empty for numbers of the whole model.

        Returns:
            The metric. Its ``value`` is None if it could not be computed.

        Raises:
            UsageError: There is no such metric.

        >>> tow = Metric(metric="tow", value=0.93, better="higher")
        >>> Scores({}, [tow]).metric("tow").value
        0.93
        """
        for metric in self.metrics:
            if metric.place == (split, subset, name):
                return metric
        raise unknown(f"metric of {split} {subset}".rstrip(), name, {metric.metric for metric in self.metrics})

    @property
    def goals(self) -> list[Goal]:
        """Both goals: erase, and as if never trained."""
        return goals(self.metrics)

    @property
    def collapse(self) -> str:
        """A warning if retained accuracy collapsed, or an empty string."""
        return collapse(self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, with the schema's version."""
        content = {"schema": SCHEMA, **self.values, "metrics": [metric.to_dict() for metric in self.metrics]}
        if self.metrics:
            content |= {"goals": [goal.to_dict() for goal in self.goals], "collapse": self.collapse}
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Scores:
        """Return the scores from the output of `to_dict`."""
        require_form(content, {}, "The scores")
        values = {name: entry for name, entry in content.items() if entry is not None}
        if (schema := values.pop("schema", None)) != SCHEMA:
            raise UsageError(f"These scores have schema {schema!r}; this unweave reads {SCHEMA}.")
        require_form(values, FORM, "The scores")
        rows = values.get("metrics") or []
        for row in rows:
            if odd := [name for name in row if name not in KEYS]:
                raise UsageError(f"The scores have the unknown entry {odd[0]!r} in a metric.")
            if row["better"] not in ARROWS:
                raise unknown("direction of a metric", row["better"], ARROWS)
        return cls(
            values, [Metric(**{"value": None, **{k: v for k, v in row.items() if v is not None}}) for row in rows]
        )

    def __str__(self) -> str:
        lines = self._accuracies()
        if self.metrics:
            lines += self._others() + self._goals()
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _accuracies(self) -> list[str]:
        lines = [f"{'':<9}{'subset':<10}{'samples':>9}{'accuracy':>10}{'loss':>10}"]
        for part in PARTS:
            for subset in EVERY:
                found = self.values.get(part, {}).get(subset)
                if found is None:
                    continue
                accuracy = "–" if found.get("accuracy") is None else f"{found['accuracy']:.2%}"
                loss = "–" if found.get("loss") is None else f"{found['loss']:.3f}"
                samples = "–" if found.get("samples") is None else found["samples"]
                lines.append(f"{part:<9}{subset:<10}{samples:>9}{accuracy:>10}{loss:>10}")
        return lines

    def _others(self) -> list[str]:
        shown = [metric for name in SHOWN for metric in self.metrics if metric.metric == name and _is_shown(metric)]
        there = [metric for metric in shown if metric.value is not None]
        lines = []
        if there:
            lines = ["", f"{'':<32}{'':<16}{'value':>8}{'interval':>16}{'retrain':>8}"]
            lines += [_line(metric) for metric in there]
            lines.append("↓ lower is better, ↑ higher, → nearest to retrain")
        reasons: dict[str, list[str]] = {}
        for metric in shown:
            names = reasons.setdefault(metric.note, []) if metric.value is None else []
            if metric.metric not in names:
                names.append(metric.metric)
        for note, names in reasons.items():
            lines += textwrap.wrap(f"not measured: {', '.join(names)}. {note}", WIDTH, subsequent_indent="  ")
        return lines

    def _goals(self) -> list[str]:
        texts = [f"{goal.name}: {goal.text}" for goal in self.goals] + [self.collapse]
        lines = [""]
        for text in filter(None, texts):
            lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ")
        return lines


def _is_shown(metric: Metric) -> bool:
    if metric.metric in COLLATERAL:
        return metric.subset in ("forget", "adjacent")
    return (metric.split, metric.subset) in (("", ""), ("train", "forget")) or metric.metric == "probe_accuracy"


def _line(metric: Metric) -> str:
    interval = "" if metric.low is None or metric.high is None else f"{_short(metric.low)}–{_short(metric.high)}"
    reference = "" if metric.reference is None else _short(metric.reference)
    place = f"{metric.split} {metric.subset}".strip()
    name = f"{metric.metric} {ARROWS[metric.better]}"
    at_least = "≥" if metric.low is not None and metric.high is None else ""
    return f"{name:<32}{place:<16}{at_least + _short(metric.value or 0.0):>8}{interval:>16}{reference:>8}"


def _short(number: float) -> str:
    return f"{number:.3f}" if abs(number) < 100 else f"{number:.0f}"
