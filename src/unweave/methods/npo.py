"""Negative preference optimisation (NPO): make the forget answers less likely than they were, and then let go.

Zhang, Lin, Bai and Mei, "Negative Preference Optimization: From Catastrophic Collapse to Effective Unlearning" (COLM
2024), with the retain term (NPO+RT).

Objective: min over θ of γ · (2/β) E_f[log(1 + (p_θ(y|x) / p_ref(y|x))^β)] + α · L(D_r). With S = −log p(y|x), summed
over the answer's tokens, the forget term is (2/β) softplus(β (S_ref − S)). Its gradient fades as an answer becomes less
likely than under the reference, the model before unlearning. A sum over tokens favours long answers.

S_ref is computed once for every forget answer, so no second model is kept.

The sources differ in the retain term only: mean over samples (``paper``), or over the tokens of each batch, drawn with
replacement, with a step size that rises and falls (``open-unlearning``). Both: β 0.1, AdamW 1e-5, batches of 32, 10
epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from unweave.data import RETAINED, Batch
from unweave.engine import Phase, Workbench
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, ReferenceLikelihoods, likelihoods
from unweave.settings import OneOf, setting


@dataclass(frozen=True, kw_only=True)
class NPO(PairedSettings, Method):
    """Negative preference optimisation: make the forget answers less likely than the original finds them.

    ``unweave methods npo`` lists the settings. Reference: Zhang et al., "Negative Preference Optimization: From
    Catastrophic Collapse to Effective Unlearning" (COLM 2024).

    Example:
        >>> import unweave as uw
        >>> uw.NPO(inverse_temperature=0.5).epochs
        10
    """

    name = "npo"
    summary = "Language models: negative preference optimisation of forget answers, beside training on retained ones."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": OPEN_UNLEARNING}

    inverse_temperature: float = setting(
        0.1, above=0, search=OneOf(0.05, 0.1, 0.5), help="How soon the forget term fades; β."
    )

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [PreferOthers(self)]


def negative_preference(sums: Tensor, reference: Tensor, *, beta: float) -> Tensor:
    """Return the forget term of every sample, from minus its log-likelihood now and under the reference.

    >>> import torch
    >>> negative_preference(torch.tensor([2.0]), torch.tensor([2.0]), beta=0.1)  # 20 log 2
    tensor([13.8629])
    """
    return 2 / beta * functional.softplus(beta * (reference - sums))


class PreferOthers(Paired):
    """Lower the likelihood of forget answers below the reference's."""

    name = "negative preference"
    keeps = (*Paired.keeps, "reference")
    settings: NPO

    def prepare(self, bench: Workbench) -> None:
        """Prepare to look up the reference."""
        super().prepare(bench)
        self.before = ReferenceLikelihoods(bench, self.forget)

    def begin(self) -> None:
        """Compute the reference's likelihoods, once."""
        self.reference = self.before.of(self.forget)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean over samples."""
        sums = self.bench.run(likelihoods, batch)[:, 0]
        reference = self.reference[self.before.places(batch)]
        return negative_preference(sums, reference, beta=self.settings.inverse_temperature).mean()
