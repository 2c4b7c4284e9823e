"""What methods with preferred answers share: each forget question has other answers, preferred to the true one.

With S = −log p(y|x), summed over tokens, under the model and under the reference (the model before unlearning), a pair
of a preferred answer w and the true answer l has the loss −log σ(β [(S_ref − S)(w) − (S_ref − S)(l)]). Both S_ref are
computed once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unweave.data import Batch, Samples
from unweave.engine import Workbench
from unweave.errors import UsageError
from unweave.methods.paired import Paired, PairedSettings, ReferenceLikelihoods, likelihoods
from unweave.settings import OneOf, setting
from unweave.storage import fingerprint

TEXTS = ("attention_mask", "input_ids", "labels")


@dataclass(frozen=True, kw_only=True)
class PreferenceSettings(PairedSettings):
    """How to prefer other answers."""

    inverse_temperature: float = setting(
        0.1, above=0, search=OneOf(0.05, 0.1, 0.5), help="How soon the preference counts as met; β."
    )


def preference(preferred: Tensor, other: Tensor, *, beta: float) -> Tensor:
    """Return −log σ(β (preferred − other)) of log-likelihood ratios against the reference, one for every sample.

    >>> preference(torch.tensor([0.0]), torch.tensor([0.0]), beta=0.1)  # log 2
    tensor([0.6931])
    """
    return functional.softplus(-beta * (preferred - other))


def require_alternatives(given: Any, name: str, *, forget: int) -> None:
    """Raise unless there is the same number of texts for each forget sample."""
    if given is None:
        raise UsageError(
            f"{name} needs other answers to the forget questions: pass alternatives=, texts as uw.answers returns "
            "them, in the order of the forget samples."
        )
    if not isinstance(given, Mapping) or not set(TEXTS) <= set(given):
        found = sorted(given) if isinstance(given, Mapping) else type(given).__name__
        raise UsageError(f"alternatives= has {found}, but must have input_ids, attention_mask and labels (uw.answers).")
    count = len(given["input_ids"])
    if count == 0 or count % forget:
        raise UsageError(
            f"alternatives= has {count} texts for {forget} forget samples. Give the same number for each, in their "
            "order."
        )


def describe_alternatives(given: Mapping[str, Tensor]) -> str:
    """Return the alternatives in a few words, for the configuration on record.

    >>> texts = {name: torch.zeros(3, 2) for name in TEXTS}
    >>> describe_alternatives(texts).partition(", ")[0]
    '3 given texts'
    """
    tensors = {name: torch.as_tensor(given[name]) for name in TEXTS}
    return f"{len(tensors['labels'])} given texts, {fingerprint(tensors)[:12]}"


class PreferAlternatives(Paired):
    """Prefer another answer to the true one on forget questions, beside training on retained ones."""

    keeps = (*Paired.keeps, "reference", "reference_others")
    settings: PreferenceSettings

    @property
    @abstractmethod
    def alternatives(self) -> Mapping[str, Any]:
        """The other answers: the same number for each forget sample, in the order of the forget samples."""

    def scale(self) -> float:
        """Return the factor of the forget term."""
        return 1.0

    def prepare(self, bench: Workbench) -> None:
        """Prepare to look up the reference."""
        super().prepare(bench)
        self.before = ReferenceLikelihoods(bench, self.forget)

    def begin(self) -> None:
        """Compute the reference's likelihoods of true and other answers, once."""
        self.reference = self.before.of(self.forget)
        everyone = torch.arange(len(self.others), device=self.bench.device)
        self.bench.task.require_samples(self.bench.model, self.others, everyone)
        self.bench.mode("eval")
        with torch.no_grad():
            parts = [self._sums(self._read(some)) for some in everyone.split(self.settings.batch_size)]
        self.bench.mode(self.settings.normalisation)
        self.reference_others = torch.cat(parts)

    @cached_property
    def others(self) -> Samples:
        """The other answers as samples."""
        return Samples(dict(self.alternatives))

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean over samples. Each pass takes the next of a question's other answers."""
        places = self.before.places(batch)
        each = len(self.others) // len(self.forget.rows)
        taken = places * each + epoch % each
        preferred = self.reference_others[taken] - self._sums(self._read(taken, batch))
        other = self.reference[places] - self._sums(batch)
        return self.scale() * preference(preferred, other, beta=self.settings.inverse_temperature).mean()

    def _read(self, places: Tensor, like: Batch | None = None) -> Batch:
        """Return other answers as a batch that is shared among processes like another one."""
        part = like.part if like else None
        data = self.others.batch(part.rows(places) if part else places, self.bench.device, cut=True).data
        return Batch(rows=places, data=data, part=part)

    def _sums(self, batch: Batch) -> Tensor:
        return self.bench.run(likelihoods, batch)[:, 0]
