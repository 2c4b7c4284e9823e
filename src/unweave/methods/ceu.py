"""CE-U: learn the model's own distribution without the true token, on forget answers.

Yang, "CE-U: Cross Entropy Unlearning" (2025).

Objective: min over θ of E_f[(1/T) Σ_t H(q_t, softmax(z_t))], q_t = softmax(z_t with the true token's logit at −∞), held
fixed in each step. The gradient with respect to z is p − q, so it is bounded, and it does not vanish where the model is
sure. The first token of an answer is left out (the paper's footnote). There is no retain term.

The sources differ in the average only: over samples (``paper``), or over the tokens of the batch, with a step size that
rises and falls (``open-unlearning``). Both: AdamW 1e-5, batches of 32, 10 epochs.
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
from unweave.settings import default, setting
from unweave.tasks import token_values


@dataclass(frozen=True, kw_only=True)
class CEU(PairedSettings, Method):
    """CE-U: learn the model's own distribution without the true token, on forget answers.

    ``unweave methods ce-u`` lists the settings. Reference: Yang, "CE-U: Cross Entropy Unlearning" (2025).

    Example:
        >>> import unweave as uw
        >>> uw.CEU(epochs=2).first_ignored
        1
    """

    name = "ce-u"
    summary = "Language models: learn the model's own distribution without the true token, on forget answers."
    needs = ("forget",)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": OPEN_UNLEARNING}

    retain_weight: float = default(0.0)
    first_ignored: int = setting(1, at_least=0, help="Tokens at the beginning of an answer that are left out.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [LearnTheRest(self)]


def cross_entropy_to_rest(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy with the model's own distribution without the target.

    >>> cross_entropy_to_rest(torch.zeros(1, 3), torch.tensor([1]))  # log 3
    tensor([1.0986])
    """
    rest = logits.detach().scatter(-1, targets.clamp(min=0)[:, None], -torch.inf)
    return functional.cross_entropy(logits, functional.softmax(rest, dim=-1), reduction="none")


def rest_losses(model: nn.Module, data: Data, *, first_ignored: int) -> Tensor:
    """Return the losses, summed over the answer's tokens after the first ones, and their number."""
    values, answer = token_values(model, data, cross_entropy_to_rest)
    return summed(values, answer & (answer.cumsum(dim=1) > first_ignored))


class LearnTheRest(Paired):
    """Learn what the model says besides the true token."""

    name = "cross-entropy unlearning"
    settings: CEU

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        self.forget_rows = partial(rest_losses, first_ignored=self.settings.first_ignored)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean loss."""
        return averaged(self.bench.run(self.forget_rows, batch), self.settings.average)
