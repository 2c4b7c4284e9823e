"""PDU: flatten the logits of forget answers, subject to a bound on the retained loss.

Entesari et al., "Constrained Entropic Unlearning: A Primal-Dual Framework for Large Language Models" (2025).

Objective: min over θ of E_f[(1/T) Σ_t (max z_t − mean z_t)²] subject to L(D_r) ≤ ε. The multiplier of the constraint
starts at λ₀. After some passes, each step sets λ ← max(0, λ + η (L_r − ε)). `unweave` puts its constraint on
forgetting; this method puts it on retention.

The sources differ. open-unlearning takes the logits at the answer's own tokens instead of those that predict them
(``unshifted``): the prediction of the first token is left out, and that after the end token counts. It averages over
the tokens of the batch. Both, on TOFU: λ₀ 100, η 5, ε 0.3, λ fixed for 5 of 10 epochs, AdamW 1e-5, batches of 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import RETAINED, Batch, Data
from unweave.engine import Logged, Phase, Workbench
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, averaged, summed
from unweave.settings import Between, setting
from unweave.tasks import token_values


@dataclass(frozen=True, kw_only=True)
class PDU(PairedSettings, Method):
    """PDU: flatten the logits of forget answers, subject to a bound on the retained loss.

    ``retain_weight`` is the multiplier at the start. ``unweave methods pdu`` lists the settings. Reference: Entesari et
    al., "Constrained Entropic Unlearning: A Primal-Dual Framework for Large Language Models" (2025).

    Example:
        >>> import unweave as uw
        >>> uw.PDU(tolerance=0.1).dual_rate
        5.0
    """

    name = "pdu"
    summary = "Language models: flatten the logits of forget answers, subject to a bound on the retained loss."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": {**OPEN_UNLEARNING, "unshifted": True}}

    retain_weight: float = setting(100.0, above=0, help="The multiplier at the start; λ₀.")
    dual_rate: float = setting(5.0, at_least=0, help="Step size of the multiplier; η.")
    tolerance: float = setting(0.3, at_least=0, search=Between(0.1, 1.5), help="Bound on the retained loss; ε.")
    fixed_epochs: int = setting(5, at_least=0, help="Epochs before the multiplier moves.")
    unshifted: bool = setting(False, help="Take the logits at the answer's tokens, as open-unlearning does.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Flatten(self)]


def margins(logits: Tensor, _: Tensor) -> Tensor:
    """Return (largest logit − mean logit)² of every place.

    >>> margins(torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor([4.])
    """
    return (logits.amax(dim=-1) - logits.mean(dim=-1)).square()


def flatness(model: nn.Module, data: Data, *, unshifted: bool) -> Tensor:
    """Return the margins, summed over the answer's places, and their number."""
    values, answer = token_values(model, data, margins, everywhere=unshifted)
    if unshifted:  # the mask of the tokens themselves: one place later, and the first token has none
        answer = functional.pad(answer[:, :-1], (1, 0))
    return summed(values, answer)


class Flatten(Paired):
    """Flatten logits while the multiplier holds the retained loss."""

    name = "constrained flattening"
    keeps = (*Paired.keeps, "multiplier")
    settings: PDU

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        self.forget_rows = partial(flatness, unshifted=self.settings.unshifted)

    def begin(self) -> None:
        """The multiplier starts at λ₀."""
        self.multiplier = torch.tensor(self.settings.retain_weight, device=self.bench.device)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean margin."""
        return averaged(self.bench.run(self.forget_rows, batch), self.settings.average)

    def retain_weight(self) -> Tensor:
        """Return the multiplier."""
        return self.multiplier

    def step(self, number: int) -> Logged:
        """Take one step on both terms. Then, after the first epochs, move the multiplier."""
        logged = {**super().step(number), "multiplier": self.multiplier}
        if number // len(self.forget) >= self.settings.fixed_epochs:
            gap = logged["retain_term"] - self.settings.tolerance
            self.multiplier = (self.multiplier + self.settings.dual_rate * gap).clamp(min=0)
        return logged
