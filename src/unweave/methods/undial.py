"""UNDIAL: learn the original's own distribution with the true token's logit lowered, on forget answers.

Dong, Lin, Belkin, Huerta and Vulić, "UNDIAL: Self-Distillation with Adjusted Logits for Robust Unlearning in Large
Language Models" (NAACL 2025).

Objective: min over θ of γ · E_f[(1/T) Σ_t H(softmax(z_t^ref − β e_{y_t}), softmax(z_t))] + α · L(D_r), where z^ref are
the logits of the model before unlearning and e_y is 1 for the true token. The target is fixed, so the loss is bounded
below and training converges. It needs a frozen copy of the model.

The sources differ. open-unlearning averages over *all* places of the batch, prompts and padding included, and where a
place has no label (−100) it lowers the logit of the token that is 100th from the end of the vocabulary
(``everywhere``). Both: β 10, no retain term (α 0), AdamW 1e-4, batches of 32, 10 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import Batch, Data
from unweave.engine import Phase, Workbench
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, averaged, summed
from unweave.settings import OneOf, default, setting
from unweave.tasks import IGNORED, token_values


@dataclass(frozen=True, kw_only=True)
class UNDIAL(PairedSettings, Method):
    """UNDIAL: learn the original's own distribution with the true token's logit lowered, on forget answers.

    ``unweave methods undial`` lists the settings. Reference: Dong et al., "UNDIAL: Self-Distillation with Adjusted
    Logits for Robust Unlearning in Large Language Models" (NAACL 2025).

    Example:
        >>> import unweave as uw
        >>> uw.UNDIAL(penalty=3.0).retain_weight
        0.0
    """

    name = "undial"
    summary = "Language models: distil the original with the true token's logit lowered, on forget answers."
    needs = ("forget",)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": {**OPEN_UNLEARNING, "everywhere": True}}

    learning_rate: float = default(1e-4)
    retain_weight: float = default(0.0)
    penalty: float = setting(10.0, at_least=0, search=OneOf(3.0, 10.0, 30.0), help="How far a logit is lowered; β.")
    everywhere: bool = setting(False, help="Average over prompts and padding too, as open-unlearning does.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [DistilLowered(self)]


def lowered(logits: Tensor, targets: Tensor, *, by: float) -> Tensor:
    """Return logits with those of the targets lowered. A target of −100 counts from the end of the vocabulary.

    >>> lowered(torch.zeros(2, 3), torch.tensor([1, -1]), by=10.0)
    tensor([[  0., -10.,   0.],
            [  0.,   0., -10.]])
    """
    places = torch.where(targets < 0, targets + logits.shape[-1], targets)
    there = (places >= 0).to(logits.dtype)  # a vocabulary of fewer than 100 tokens has no such token
    return logits.scatter_add(-1, places.clamp(min=0)[:, None], -by * there[:, None])


def distilled(model: nn.Module, data: Data, *, teacher: nn.Module, penalty: float, everywhere: bool) -> Tensor:
    """Return the cross-entropy with the lowered distribution, summed over places, and their number."""

    def at_places(logits: Tensor, targets: Tensor, taught: Tensor) -> Tensor:
        known = targets if everywhere else targets.where(targets != IGNORED, 0)
        target = functional.softmax(lowered(taught, known, by=penalty), dim=-1)
        return functional.cross_entropy(logits, target, reduction="none")

    values, answer = token_values(model, data, at_places, beside=teacher, everywhere=everywhere)
    if everywhere:  # the last place predicts nothing
        return summed(values[:, :-1], torch.ones_like(answer[:, :-1]))
    return summed(values, answer)


class DistilLowered(Paired):
    """Learn the lowered distribution."""

    name = "adjusted distillation"
    settings: UNDIAL

    @property
    def asks_teacher(self) -> bool:
        """The target is made from the original's logits."""
        return True

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        s = self.settings
        self.forget_rows = partial(distilled, teacher=self.teacher, penalty=s.penalty, everywhere=s.everywhere)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean cross-entropy."""
        return averaged(self.bench.run(self.forget_rows, batch), self.settings.average)
