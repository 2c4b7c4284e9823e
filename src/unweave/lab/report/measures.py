"""The metrics of a study: their titles, their units, and which direction is better."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

SPLITS, SUBSETS = ("train", "test"), ("forget", "adjacent", "remote")
ARROWS = {"lower": "↓", "higher": "↑", "reference": "→", "": ""}
COSTS = ("seconds", "peak_memory_bytes", "process_memory_bytes", "sample_gradients", "sample_forwards")
HIGHER = ("tow", "tow_mia", "tow_split")
NO_GOAL = ("samples",)
TITLES = {
    "mia_svc_confidence": "confidence attack: called non-members",
    "mia_population_auc": "loss attack AUC",
    "mia_rmia_auc": "RMIA AUC",
    "mia_ulira_auc": "U-LiRA AUC",
    "tow_mia": "ToW with attack",
    "seconds": "time",
    "peak_memory_bytes": "accelerator memory, peak",
    "process_memory_bytes": "process memory, peak",
    "sample_gradients": "sample gradients",
    "sample_forwards": "sample forwards",
}
ACRONYMS = {"mia": "attack:", "svc": "SVC", "auc": "AUC", "tpr": "TPR", "fpr": "FPR", "tow": "ToW", "klom": "KLOM"}


class Place(NamedTuple):
    """What was measured, and on which data: three columns of the study's table."""

    split: str
    subset: str
    metric: str

    @property
    def words(self) -> str:
        """The split and the subset as a person reads them: ``train forget``; empty for the whole model."""
        return f"{self.split} {self.subset}".strip()


SECONDS = Place("", "", "seconds")


def title(metric: str) -> str:
    """Return a metric's name in words.

    >>> title("accuracy"), title("mia_rmia_tpr_at_1_percent_fpr"), title("tow_split")
    ('accuracy', 'attack: rmia TPR at 1 percent FPR', 'ToW split')
    """
    return TITLES.get(metric) or " ".join(ACRONYMS.get(word, word) for word in metric.split("_"))


def unit(metric: str) -> str:
    """Return the unit in which a person reads a metric; empty for a plain number.

    >>> [unit(name) for name in ("accuracy", "mia_rmia_auc", "seconds", "peak_memory_bytes", "samples", "loss")]
    ['%', '', 's', 'MiB', 'count', '']
    """
    if metric == "seconds":
        return "s"
    if metric.endswith("_bytes"):
        return "MiB"
    if metric.startswith(("sample", "relearn_steps")):
        return "count"
    is_share = "accuracy" in metric or "_tpr_at_" in metric or re.fullmatch(r"mia_svc_(?!.*auc$)\w+", metric)
    return "%" if is_share else ""


def default_direction(place: Place) -> str:
    """Return which direction is better, for values whose run does not record it.

    >>> default_direction(Place("train", "forget", "accuracy")), default_direction(Place("", "", "seconds"))
    ('lower', 'lower')
    """
    if place.metric in NO_GOAL:
        return ""
    if place.metric.startswith("mia_") or place.metric.startswith("relearn") or place.metric == "probe_accuracy":
        return "reference"
    good = place.metric == "accuracy" or place.metric in HIGHER
    if place.subset == "forget" and place.metric in ("accuracy", "loss"):
        good = not good
    return "higher" if good else "lower"


def number(value: float, metric: str) -> str:
    """Return a value as a person reads it, without its unit.

    >>> number(0.5, "accuracy"), number(2**21, "peak_memory_bytes"), number(1234567, "sample_gradients")
    ('50.0', '2.0', '1,234,567')
    """
    if not math.isfinite(value):
        return "not finite"
    kind = unit(metric)
    if kind == "%":
        return f"{100 * value:.1f}"
    if kind == "MiB":
        return f"{value / 2**20:.1f}"
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "s":
        return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    large = f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < 1000 else large


class Spread(NamedTuple):
    """Mean and sample standard deviation over seeds; a single seed has no deviation."""

    mean: float
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value.

        >>> Spread.of([0.5, 0.75, 1.0])
        Spread(mean=0.75, deviation=0.25, seeds=3)
        """
        mean = math.fsum(values) / len(values)
        if len(values) == 1 or not math.isfinite(mean):
            return cls(mean, None, len(values))
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)), len(values))

    def text(self, metric: str) -> str:
        """Return mean ± deviation as a person reads it.

        >>> Spread.of([0.5, 0.6]).text("accuracy")
        '55.0 ± 7.1'
        """
        mean = number(self.mean, metric)
        return mean if self.deviation is None else f"{mean} ± {number(self.deviation, metric)}"
