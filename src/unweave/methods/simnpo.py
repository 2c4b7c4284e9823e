"""SimNPO: negative preference optimisation without a reference, by the mean loss of an answer's tokens.

Fan et al., "Simplicity Prevails: Rethinking Negative Preference Optimization for LLM Unlearning" (2024).

Objective: min over θ of γ · E_f[−(2/β) log σ(β m − δ)] + α · L(D_r), where m = −(1/T) log p(y|x) is the mean negative
log-likelihood of the answer's T tokens. The mean removes the bias towards long answers, and without a reference,
answers that are already unlikely are left in peace.

The sources differ. The paper's margin δ stands beside β m. open-unlearning, after the authors' code, multiplies it by
β: β (m − δ) (``scaled_margin``). With δ = 0 they agree. open-unlearning also takes the token mean of the retain term.
Both: β 4.5, δ 0, γ 0.125, AdamW 1e-5, batches of 32, 10 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from unweave.data import RETAINED, Batch
from unweave.engine import Phase
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, likelihoods
from unweave.settings import OneOf, default, setting


@dataclass(frozen=True, kw_only=True)
class SimNPO(PairedSettings, Method):
    """SimNPO: negative preference optimisation without a reference, by the mean loss of an answer's tokens.

    ``unweave methods simnpo`` lists the settings. Reference: Fan et al., "Simplicity Prevails: Rethinking Negative
    Preference Optimization for LLM Unlearning" (2024).

    Example:
        >>> import unweave as uw
        >>> uw.SimNPO.configure(profile="open-unlearning").scaled_margin
        True
    """

    name = "simnpo"
    summary = "Language models: negative preference optimisation by mean token losses, without a reference."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": {**OPEN_UNLEARNING, "scaled_margin": True}}

    forget_weight: float = default(0.125)
    inverse_temperature: float = setting(
        4.5, above=0, search=OneOf(3.5, 4.5), help="How soon the forget term fades; β."
    )
    margin: float = setting(0.0, at_least=0, search=OneOf(0.0, 1.0), help="Mean loss that an answer should exceed; δ.")
    scaled_margin: bool = setting(False, help="Multiply the margin by β, as the authors' code does.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [PreferOtherTokens(self)]


def simple_negative_preference(means: Tensor, *, beta: float, margin: float, scaled_margin: bool) -> Tensor:
    """Return the forget term of every sample from the mean loss of its tokens.

    >>> import torch
    >>> simple_negative_preference(torch.tensor([0.0]), beta=4.5, margin=0.0, scaled_margin=False)  # (2 / 4.5) log 2
    tensor([0.3081])
    """
    shift = beta * margin if scaled_margin else margin
    return 2 / beta * functional.softplus(shift - beta * means)


class PreferOtherTokens(Paired):
    """Raise the mean loss of forget answers until it is high."""

    name = "simple negative preference"
    settings: SimNPO

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean over samples."""
        s, rows = self.settings, self.bench.run(likelihoods, batch)
        return simple_negative_preference(
            rows[:, 0] / rows[:, 1], beta=s.inverse_temperature, margin=s.margin, scaled_margin=s.scaled_margin
        ).mean()
