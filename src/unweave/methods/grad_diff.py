"""Gradient difference (GradDiff): raise the loss of the forget answers while training on the retained ones.

Liu, Liu and Stone, "Continual Learning and Private Unlearning" (CoLLAs 2022); on language models Maini et al., "TOFU"
(COLM 2024).

Objective: min over θ of −γ L(D_f) + α L(D_r), where L(D) is the mean over samples of −(1/T) Σ_t log p(y_t | x, y_<t).
The forget term has no lower bound. Without the retain term (``retain_weight=0``) this is gradient ascent.

The sources differ. TOFU averages over samples. open-unlearning takes the token mean over each batch, draws retained
samples with replacement, and its step size rises from 0 for one epoch and falls to 0. Both use AdamW 1e-5 with weight
decay 0.01 and batches of 32; TOFU runs 5 epochs, open-unlearning 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unweave.data import RETAINED, Batch
from unweave.engine import Phase
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, averaged, likelihoods
from unweave.settings import default


@dataclass(frozen=True, kw_only=True)
class GradDiff(PairedSettings, Method):
    """Gradient difference: raise the loss of the forget answers while training on the retained ones.

    ``unweave methods grad-diff`` lists the settings. Reference: Maini et al., "TOFU: A Task of Fictitious Unlearning
    for LLMs" (COLM 2024).

    Example:
        >>> import unweave as uw
        >>> uw.GradDiff(epochs=2).retain_weight
        1.0
    """

    name = "grad-diff"
    summary = "Language models: raise the loss of forget answers while training on retained ones."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {
        "paper": {},  # TOFU, section on baselines
        "open-unlearning": {**OPEN_UNLEARNING, "epochs": 10},
    }

    epochs: int = default(5)

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [AscendAndDescend(self)]


class AscendAndDescend(Paired):
    """Ascend on the forget answers, descend on the retained ones."""

    name = "gradient difference"

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return minus the mean loss."""
        return -averaged(self.bench.run(likelihoods, batch), self.settings.average)
