"""WGA: gradient ascent that leaves tokens in peace once they are unlikely.

Wang et al., "Rethinking LLM Unlearning Objectives: A Gradient Perspective and Go Beyond" (ICLR 2025).

Objective: min over θ of −γ · E_f[(1/T) Σ_t p_t^β ℓ_t] + α · L(D_r), with p_t = p(y_t | x, y_<t), ℓ_t = −log p_t, and
the weights p_t^β held fixed in each step. The weight cancels the factor 1/p_t of ascent's gradient, so unlikely tokens
are hardly pushed on.

The sources differ in the average only: over samples (``paper``), or over the tokens of the batch, with a step size that
rises and falls (``open-unlearning``). Both: β 1, AdamW 1e-5, batches of 32, 5 epochs.
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
from unweave.settings import Between, default, setting
from unweave.tasks import token_losses, token_values


@dataclass(frozen=True, kw_only=True)
class WGA(PairedSettings, Method):
    """WGA: gradient ascent that leaves tokens in peace once they are unlikely.

    ``unweave methods wga`` lists the settings. Reference: Wang et al., "Rethinking LLM Unlearning Objectives" (ICLR
    2025).

    Example:
        >>> import unweave as uw
        >>> uw.WGA(exponent=0.5).epochs
        5
    """

    name = "wga"
    summary = "Language models: ascent on forget answers, weighted by the tokens' probabilities, beside training."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": OPEN_UNLEARNING}

    epochs: int = default(5)
    exponent: float = setting(1.0, at_least=0, search=Between(0.1, 10), help="Power of a token's probability; β.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [AscendWeighted(self)]


def weighted_losses(model: nn.Module, data: Data, *, exponent: float) -> Tensor:
    """Return the weighted losses, summed over the answer's tokens, and their number."""

    def at_places(logits: Tensor, targets: Tensor) -> Tensor:
        losses = token_losses(logits, targets)
        return (-losses).exp().detach() ** exponent * losses

    return summed(*token_values(model, data, at_places))


class AscendWeighted(Paired):
    """Ascend on forget answers by weighted losses."""

    name = "weighted ascent"
    settings: WGA

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        self.forget_rows = partial(weighted_losses, exponent=self.settings.exponent)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return minus the mean weighted loss."""
        return -averaged(self.bench.run(self.forget_rows, batch), self.settings.average)
