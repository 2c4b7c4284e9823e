"""What methods for language models share: steps on a forget batch beside a retained one, and means over answers.

A step descends on γ · (forget term) + α · (retain term). One epoch is one pass over the forget data. Every number comes
from rows of results, one row for each sample, so a batch may be run in pieces.

Papers write log-likelihoods of answers, and average over samples. Their code, and open-unlearning's, takes the mean
over all tokens of the batch (``average=tokens``), where long answers weigh more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import Batch, Data
from unweave.engine import Batches, Logged, OptimizerName, Phase, Workbench, derive_seed
from unweave.errors import UsageError
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.settings import Multiples, OneOf, default, setting
from unweave.tasks import token_losses, token_values

Average = Literal["samples", "tokens"]

# What every method of open-unlearning shares. Its batches are the sum of small ones, so 32 is the effective size.
OPEN_UNLEARNING: dict[str, Any] = {
    "schedule": "linear",
    "normalisation": "train",
    "average": "tokens",
    "pairing": "drawn",
}


@dataclass(frozen=True, kw_only=True)
class PairedSettings(DescentSettings):
    """How to descend on forget and retained batches together."""

    optimizer: OptimizerName = default("adamw")
    learning_rate: float = default(1e-5)
    weight_decay: float = default(0.01)
    epochs: int = setting(10, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the forget data.")
    batch_size: int = setting(32, at_least=1, help="Forget samples per step, and as many retained ones.")
    normalisation: Literal["train", "eval"] = default("eval")
    forget_weight: float = setting(1.0, at_least=0, help="Weight of the forget term; γ.")
    retain_weight: float = setting(1.0, at_least=0, search=OneOf(1.0, 2.0, 5.0), help="Weight of the retain term; α.")
    retain_loss: Literal["nll", "kl", "kl-everywhere"] = setting(
        "nll",
        help="Retain term: the answers' losses; the divergence from the original on the answers; or that at every "
        "place, prompts and padding included, as open-unlearning's KL.",
    )
    average: Average = setting("samples", help="Mean over samples of the mean over tokens, or mean over all tokens.")
    pairing: Literal["shuffled", "drawn"] = setting(
        "shuffled", help="Retained samples: shuffled passes over all of them, or drawn anew with replacement."
    )


def averaged(rows: Tensor, average: Average) -> Tensor:
    """Return a mean over answers from rows of (sum over tokens, number of tokens).

    >>> rows = torch.tensor([[2.0, 1.0], [3.0, 3.0]])
    >>> averaged(rows, "samples"), averaged(rows, "tokens")
    (tensor(1.5000), tensor(1.2500))
    """
    sums, counts = rows.unbind(dim=1)
    return sums.sum() / counts.sum() if average == "tokens" else (sums / counts.clamp(min=1)).mean()


def likelihoods(model: nn.Module, data: Data) -> Tensor:
    """Return minus the log-likelihood of every answer, and its number of tokens."""
    return summed(*token_values(model, data, token_losses))


def summed(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the sum over the chosen places of every sample, and their number.

    >>> summed(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[False, True, True]]))
    tensor([[6., 2.]])
    """
    return torch.stack([(values * chosen).sum(dim=1), chosen.sum(dim=1).to(values.dtype)], dim=1)


def divergences(model: nn.Module, data: Data, *, teacher: nn.Module, everywhere: bool) -> Tensor:
    """Return the divergence KL(teacher ‖ model) of every sample, summed over its places, and their number."""

    def at_places(logits: Tensor, _: Tensor, taught: Tensor) -> Tensor:
        return functional.kl_div(
            functional.log_softmax(logits, dim=-1),
            functional.log_softmax(taught, dim=-1),
            reduction="none",
            log_target=True,
        ).sum(dim=-1)

    values, answer = token_values(model, data, at_places, beside=teacher, everywhere=everywhere)
    return summed(values, torch.ones_like(answer) if everywhere else answer)


class Paired(Phase):
    """Descend on a forget batch and a retained batch at once. Subclasses say what the forget term is."""

    keeps: ClassVar[tuple[str, ...]] = ("optimizer", "teacher")
    settings: PairedSettings

    def __init__(self, settings: PairedSettings) -> None:
        self.settings = settings

    @property
    def asks_teacher(self) -> bool:
        """Whether a copy of the original model is needed."""
        return self.settings.retain_loss != "nll" and self.settings.retain_weight > 0

    def prepare(self, bench: Workbench) -> None:
        """Make the batches, the optimiser and, if it is needed, the teacher."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.batch_size)
        self.steps = s.epochs * len(self.forget)
        self.retained = self._retained() if s.retain_weight > 0 else None
        self.teacher: nn.Module = bench.frozen_copy() if self.asks_teacher else nn.Identity()
        self.optimizer = self.make_optimizer()
        self.retain_rows = self.make_retain_rows()
        bench.mode(s.normalisation)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return optimizer_for(self.settings, self.bench)

    def make_retain_rows(self) -> Callable[[nn.Module, Data], Tensor]:
        """Return the function that gives the rows of the retain term."""
        if self.settings.retain_loss == "nll":
            return likelihoods
        return partial(divergences, teacher=self.teacher, everywhere=self.settings.retain_loss == "kl-everywhere")

    @abstractmethod
    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the forget term of one batch."""

    def retain_term(self, batch: Batch) -> Tensor:
        """Return the retain term of one batch."""
        return averaged(self.bench.run(self.retain_rows, batch), self.settings.average)

    def retain_weight(self) -> Tensor | float:
        """Return the weight of the retain term at this step."""
        return self.settings.retain_weight

    def step(self, number: int) -> Logged:
        """Take one optimiser step on one forget batch and one retained batch."""
        set_learning_rate(self.optimizer, self.settings, done=number / self.steps)
        logged: dict[str, Tensor | float] = {}
        self.bench.descend(self.optimizer, self.bench.gradient(self._terms(number, logged)))
        return logged

    def _terms(self, number: int, logged: dict[str, Tensor | float]) -> Iterator[Tensor]:
        """Yield the weighted terms one by one, so that only one batch's activations are in memory."""
        forget = self.forget_term(self.forget[number], number // len(self.forget))
        logged["forget_term"] = forget.detach()
        yield self.settings.forget_weight * forget
        if self.retained is not None:
            retain = self.retain_term(self.retained_batch(number))
            logged["retain_term"] = retain.detach()
            yield self.retain_weight() * retain

    def retained_batch(self, number: int) -> Batch:
        """Return the retained batch of a step."""
        assert self.retained is not None
        return self.retained.unshuffled(number) if self.settings.pairing == "drawn" else self.retained[number]

    def _retained(self) -> Batches:
        batches = self.bench.batches("adjacent", "remote", size=self.settings.batch_size)
        if self.settings.pairing == "shuffled":
            return batches
        generator = torch.Generator().manual_seed(derive_seed(self.bench.seed, self.name, "retained"))
        places = torch.randint(len(batches.rows), (max(1, self.steps) * batches.size,), generator=generator)
        return batches.of_rows(batches.rows[places.to(batches.rows.device)])


class ReferenceLikelihoods:
    """Minus the log-likelihood of every forget answer under the original, kept so that no second model is needed."""

    def __init__(self, bench: Workbench, forget: Batches) -> None:
        self.bench, self.forget = bench, forget
        if bench.varies(forget):
            raise UsageError(
                "This method keeps the original's likelihood of every forget sample, but these samples differ each "
                "time they are read. Give data without random transforms."
            )
        self.order = forget.rows.argsort()

    def places(self, batch: Batch) -> Tensor:
        """Return the places of a batch's samples among the forget samples, in the order of their positions."""
        return torch.searchsorted(self.forget.rows[self.order], batch.rows)

    @torch.no_grad()
    def of(self, batches: Batches) -> Tensor:
        """Return the sums under the present weights, in the order of positions in the data set."""
        was = self.bench.model.training
        self.bench.mode("eval")
        found = torch.cat([self.bench.run(likelihoods, batch)[:, 0] for batch in batches.in_order()])
        self.bench.mode("train" if was else "eval")
        return found[batches.rows.argsort()]
