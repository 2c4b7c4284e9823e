"""What a model that never saw the forget data recognises of it: measured on a retrained model, or forecast."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from unweave.data import RETAINED, Partition
from unweave.engine import Compute
from unweave.errors import RunError, UsageError
from unweave.evaluation.scores import Scores
from unweave.evaluation.votes import votes_in

NEIGHBOURS = 20  # retained samples that vote for each forget sample
MOST = 20_000  # samples of the training data for which a forecast costs little beside the scores


@dataclass(frozen=True, kw_only=True)
class NeverSeen:
    """The share of the forget training samples that a model which never saw them recognises.

    ``share`` is None if it is not known; ``note`` then says why. It is ``measured`` on retrained models, or forecast by
    the votes of the nearest retained samples.

    >>> print(NeverSeen(share=0.3))
    A model that never saw them would probably recognise 30% (a forecast).
    >>> print(NeverSeen(share=0.3, measured=True))
    A model retrained without them recognises 30.0%.
    """

    share: float | None = None
    measured: bool = False
    note: str = ""

    def __str__(self) -> str:
        if self.share is None:
            return f"What a model that never saw them would recognise is not known: {self.note}"
        if self.measured:
            return f"A model retrained without them recognises {self.share:.1%}."
        return f"A model that never saw them would probably recognise {self.share:.0%} (a forecast)."

    def to_dict(self) -> dict[str, Any]:
        """Return the entries by name."""
        return asdict(self)


def never_seen(scores: Scores, original: nn.Module, split: Partition, compute: Compute) -> NeverSeen:
    """Return what is known from scores with a retrained reference; otherwise a forecast from the original's features.

    The forecast takes one forward pass of the original over at most 12,000 samples of the training data.
    """
    for metric in scores.metrics:
        if metric.place == ("train", "forget", "accuracy") and metric.reference is not None:
            return NeverSeen(share=metric.reference, measured=True)
    if reason := _no_forecast(scores, split, compute):
        return NeverSeen(note=reason)
    try:
        return NeverSeen(share=_forecast(scores, original, split, compute))
    except (UsageError, RunError) as error:
        return NeverSeen(note=f"no forecast can be made. {error}")


def _no_forecast(scores: Scores, split: Partition, compute: Compute) -> str:
    """Return why there is no cheap forecast, or an empty string."""
    observed = scores.observed
    if observed is None or any(len(observed.parts["train"][name]) != len(split[name]) for name in split.names):
        return "the scores were not measured on this split."
    forget = observed("train", "forget")
    if not len(forget) or not len(observed("train", *RETAINED)):
        return "there is no forget data or no kept data."
    if not forget.task.has_choices or forget.task.has_tokens:
        return f"a forecast needs one class per sample, which the task {forget.task.name} has not."
    if compute.cuts_weights:
        return "the weights are spread over several processes."
    if (size := sum(len(split[name]) for name in split.names)) > MOST:
        return f"a forecast for {size:,} samples takes a while. split.inspect(model) makes it."
    return ""


def _forecast(scores: Scores, original: nn.Module, split: Partition, compute: Compute) -> float:
    subsets = ("forget", *RETAINED)
    parts = scores.observed.parts["train"] if scores.observed else {}
    found = torch.cat([parts[name].labels for name in subsets if len(parts[name])]).cpu()
    labels = found.new_zeros((len(split.samples), *found.shape[1:]))
    labels[torch.cat([split.rows(name) for name in subsets])] = found
    voted = votes_in(
        original,
        split.samples,
        split.rows("forget"),
        split.rows(*RETAINED),
        labels,
        k=NEIGHBOURS,
        device=compute.device,
        precision=compute.precision,
    )
    return voted.forecast
