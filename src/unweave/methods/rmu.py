"""RMU: push the hidden states of forget answers towards a random direction, and hold those of retained ones.

Li et al., "The WMDP Benchmark: Measuring and Reducing Malicious Use with Unlearning" (ICML 2024).

Objective: min over θ of γ · E_f[(1/T) Σ_t ‖h_t − c u‖²] + α · E_r[(1/T) Σ_t ‖h_t − h_t^ref‖²], where h_t is the output
of one block at the answer's token t, h^ref that of the model before unlearning, and u a unit vector with entries drawn
from [0, 1). The retain term needs a frozen copy of the model.

The sources differ. The paper takes squared norms and trains only the down-projections of three blocks, ``layer`` and
the two before it (Zephyr-7B: layer 7, c 6.5, α 1200, learning rate 5e-5, 150 batches of 4). open-unlearning takes means
over the features instead of norms (``average_features``) and trains all weights; its values are c 2, α 1, learning rate
1e-5, batches of 32, 10 epochs. Its code also divides a column by a row, so each sample's sum is divided by the number
of tokens of every sample, and all of these are averaged (``crossed``). Which layer and c are right depends on the
model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from unweave.data import RETAINED, Batch, Data, labels_of
from unweave.engine import Phase, Workbench, derive_seed, make_optimizer
from unweave.errors import UsageError
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING, Paired, PairedSettings, summed
from unweave.settings import Between, OneOf, default, setting
from unweave.tasks import IGNORED, block, hidden_states

# The names in Llama, GPT-2, NeoX, OPT and GPT-J.
DOWN = re.compile(r"(.*\.)?(down_proj|c_proj|dense_4h_to_h|fc2|fc_out)\.(.*\.)?weight")
ATTENTION = re.compile(r"attn|attention")


@dataclass(frozen=True, kw_only=True)
class RMU(PairedSettings, Method):
    """RMU: push the hidden states of forget answers towards a random direction, and hold those of retained ones.

    ``unweave methods rmu`` lists the settings. Reference: Li et al., "The WMDP Benchmark: Measuring and Reducing
    Malicious Use with Unlearning" (ICML 2024).

    Example:
        >>> import unweave as uw
        >>> uw.RMU(layer=3).strength
        6.5
    """

    name = "rmu"
    summary = "Language models: push hidden states of forget answers to a random direction, hold retained ones."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {
        "paper": {},  # Zephyr-7B on WMDP
        "open-unlearning": {
            **OPEN_UNLEARNING,
            "learning_rate": 1e-5,
            "weight_decay": 0.01,
            "epochs": 10,
            "batch_size": 32,
            "retain_weight": 1.0,
            "strength": 2.0,
            "trained": "all",
            "average_features": True,
            "crossed": True,
        },
    }

    learning_rate: float = default(5e-5)
    weight_decay: float = default(0.0)
    epochs: int = default(2)
    batch_size: int = default(4)
    retain_weight: float = setting(1200.0, at_least=0, search=Between(1, 1200), help="Weight of the retain term; α.")
    layer: int = setting(7, at_least=0, search=OneOf(5, 7, 10), help="The block whose output is moved, from 0.")
    strength: float = setting(6.5, above=0, search=OneOf(2.0, 6.5, 10.0), help="Length of the random direction; c.")
    trained: Literal["down-projections", "all"] = setting(
        "down-projections", help="Which weights are trained: those of three blocks' down-projections, or all."
    )
    average_features: bool = setting(False, help="Take the mean over features instead of the squared norm.")
    crossed: bool = setting(
        False, help="Divide each sample's sum by the number of tokens of every sample, as open-unlearning's code does."
    )

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Misdirect(self)]


def distances(
    model: nn.Module, data: Data, *, layer: int, target: Callable[[Data, Tensor], Tensor], average_features: bool
) -> Tensor:
    """Return squared distances of hidden states from a target, summed over each answer's tokens, and their number."""
    hidden = hidden_states(model, data, layer=layer)
    hidden = hidden.float() if hidden.itemsize == 2 else hidden
    squared = (hidden - target(data, hidden)).square()
    answer = labels_of(data)[:, : hidden.shape[1]] != IGNORED
    return summed(squared.mean(dim=-1) if average_features else squared.sum(dim=-1), answer)


class Misdirect(Paired):
    """Move hidden states of forget answers, hold those of retained answers."""

    name = "misdirection"
    settings: RMU

    @property
    def asks_teacher(self) -> bool:
        """The retain term compares with the original's hidden states."""
        return self.settings.retain_weight > 0

    def prepare(self, bench: Workbench) -> None:
        """Make the function of the forget term."""
        super().prepare(bench)
        self.forget_rows = self._rows(self._direction)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return an optimiser over the weights that are trained."""
        s, bench = self.settings, self.bench
        chosen = bench.parameters if s.trained == "all" else self._down_projections()
        return make_optimizer(
            s.optimizer, chosen, learning_rate=s.learning_rate, momentum=s.momentum, weight_decay=s.weight_decay
        )

    def make_retain_rows(self) -> Callable[[nn.Module, Data], Tensor]:
        """Return the function that compares hidden states with the original's."""
        return self._rows(self._original)

    def forget_term(self, batch: Batch, epoch: int) -> Tensor:
        """Return the mean over samples of the mean over the answer's tokens."""
        return self._mean(self.bench.run(self.forget_rows, batch))

    def retain_term(self, batch: Batch) -> Tensor:
        """Return the mean over samples of the mean over the answer's tokens."""
        return self._mean(self.bench.run(self.retain_rows, batch))

    def _mean(self, rows: Tensor) -> Tensor:
        sums, counts = rows.unbind(dim=1)
        return sums.mean() * (1 / counts).mean() if self.settings.crossed else (sums / counts).mean()

    def _rows(self, target: Callable[[Data, Tensor], Tensor]) -> Callable[[nn.Module, Data], Tensor]:
        s = self.settings
        return partial(distances, layer=s.layer, target=target, average_features=s.average_features)

    def _direction(self, _: Data, hidden: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.bench.seed, self.name))
        drawn = torch.rand(hidden.shape[-1], generator=generator)
        return (drawn / drawn.square().sum().sqrt()).to(hidden) * self.settings.strength

    def _original(self, data: Data, _: Tensor) -> Tensor:
        with torch.no_grad():
            return hidden_states(self.teacher, data, layer=self.settings.layer)

    def _down_projections(self) -> list[nn.Parameter]:
        last, model = self.settings.layer, self.bench.model
        found = [
            parameter
            for layer in range(last, max(-1, last - 3), -1)
            for name, parameter in block(model, layer).named_parameters()
            if parameter.requires_grad and DOWN.fullmatch(name) and not ATTENTION.search(name)
        ]
        if not found:
            raise UsageError(
                f"No trainable down-projections were found in the blocks up to {last} of {type(model).__name__}. Use "
                "trained=all."
            )
        return found
