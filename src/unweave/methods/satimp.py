"""SatImp: gradient ascent on the tokens that are neither certain nor already unlikely.

Yang et al., "Exploring Criteria of Loss Reweighting to Enhance LLM Unlearning" (ICML 2025).

Objective: min over θ of −γ · E_f[(1/T) Σ_t p_t^β₁ (1 − p_t)^β₂ ℓ_t] + α · L(D_r), with p_t = p(y_t | x, y_<t) and ℓ_t =
−log p_t. The weights are held fixed in each step. p^β₁ is small for tokens that are forgotten enough (saturation), (1 −
p)^β₂ for tokens that anything would predict (importance).

The sources differ in the average only: over samples (``paper``), or over the tokens of the batch, with a step size that
rises and falls (``open-unlearning``; its Python defaults swap α and γ, its configuration is taken). Both: β₁ 5, β₂ 1, γ
0.1, α 1, AdamW 1e-5, batches of 32, 5 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from unweave.data import RETAINED, Batch, Data
from unweave.engine import Phase, Workbench
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, averaged, summed
from unweave.settings import OneOf, default, setting
from unweave.tasks import token_losses, token_values


@dataclass(frozen=True, kw_only=True)
class SatImp(PairedSettings, Method):
    """SatImp: gradient ascent on the tokens that are neither certain nor already unlikely.

    ``unweave methods satimp`` lists the settings. Reference: Yang et al., "Exploring Criteria of Loss Reweighting to
    Enhance LLM Unlearning" (ICML 2025).

    Example:
        >>> import unweave as uw
        >>> uw.SatImp(saturation=6.0).importance
        1.0
    """

    name = "satimp"
    summary = "Language models: ascent on forget tokens that are neither certain nor unlikely, beside training."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": OPEN_UNLEARNING}

    epochs: int = default(5)
    forget_weight: float = default(0.1)
    saturation: float = setting(5.0, at_least=0, search=OneOf(5.0, 6.0), help="Power of a token's probability; β₁.")
    importance: float = setting(1.0, at_least=0, search=OneOf(0.5, 1.0), help="Power of 1 − probability; β₂.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [AscendBetween(self)]


def reweighted_losses(model: nn.Module, data: Data, *, saturation: float, importance: float) -> Tensor:
    """Return the weighted losses, summed over the answer's tokens, and their number."""

    def at_places(logits: Tensor, targets: Tensor) -> Tensor:
        losses = token_losses(logits, targets)
        probabilities = (-losses).exp().detach()
        return probabilities**saturation * (1 - probabilities) ** importance * losses

    return summed(*token_values(model, data, at_places))


class AscendBetween(Paired):
    """Ascend on forget answers by weighted losses."""

    name = "saturation and importance"
    settings: SatImp

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        s = self.settings
        self.forget_rows = partial(reweighted_losses, saturation=s.saturation, importance=s.importance)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return minus the mean weighted loss."""
        return -averaged(self.bench.run(self.forget_rows, batch), self.settings.average)
