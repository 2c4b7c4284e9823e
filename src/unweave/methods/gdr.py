"""GDR-GMA: rectify the directions of the forget and the retained gradient, and weigh them by the retained loss.

Lin et al., "GDR-GMA: Machine Unlearning via Direction-Rectified and Magnitude-Adjusted Gradients", ACM MM 2024.

Per step, with n = ∇ CE of a retained batch and t = ∇(−CE) of a forget batch, for every parameter tensor: where
⟨n, t⟩ < 0,

    n' = n − (⟨n, t⟩ / ‖t‖²) t,    t' = t − (⟨n, t⟩ / ‖n‖²) n'

(the second line uses n', as upstream does). A bank keeps the last ⌈|D_f| / batch⌉ forget gradients of the last tensor.
(Where forget and retained batches differ in size, the larger counts, as in the entanglement paper's release.) From the
second epoch on, t' of the last tensor is also rectified against the mean of the gradients in the bank that conflict
with it. The step is along (1 − w) n' + w t' with w = 1 / (1 + exp(γ (L_n − ε))): the model forgets only while the
retained loss is near or below ε.

Upstream adds the bank's entries into the first of them in place, twice per step, which corrupts the bank. Our default
averages copies; ``literal_bank=True`` is the upstream form. ``official`` is AdamW 1e-4, γ 100, ε 0.02, batch 256, 10
epochs and training mode, with the retained batch first. The entanglement paper prints the same values, and its release
follows them. On data that the model does not fit (retained loss above 0.1), w vanishes and GDR is fine-tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unweave.data import RETAINED
from unweave.engine import Logged, OptimizerName, Phase, Workbench
from unweave.maths import combine
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.settings import Between, default, setting


@dataclass(frozen=True, kw_only=True)
class GDR(DescentSettings, Method):
    """GDR-GMA: rectify conflicting forget and retained gradients, and weigh them by the retained loss.

    ``unweave methods gdr`` lists the settings. Reference: Lin et al., "GDR-GMA: Machine Unlearning via
    Direction-Rectified and Magnitude-Adjusted Gradients" (ACM MM 2024).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.GDR(epochs=3), guard=None)
        >>> all(0 <= weight <= 1 for weight in result.history.column("weight"))
        True
    """

    name = "gdr"
    summary = "Rectify conflicting forget and retained gradients, and weigh them by the retained loss."
    needs = ("forget", RETAINED)
    profiles: ClassVar[Profiles] = {
        "official": {},  # RUIYUN-ML/GDR-GMA
        "paper": {"batch_size": 128},  # appendix "Baseline Methods", CIFAR-100
        "released": {"batch_size": 128, "literal_bank": True},
    }

    optimizer: OptimizerName = default("adamw")
    learning_rate: float = default(1e-4)
    weight_decay: float = default(0.01)
    batch_size: int = default(256)
    sharpness: float = setting(100.0, above=0, help="How sharply forgetting stops as the retained loss rises; γ.")
    tolerance: float = setting(
        0.02, at_least=0, search=Between(0.002, 0.5), help="Retained loss at which both gradients weigh the same; ε."
    )
    forget_batch: int = setting(0, at_least=0, help="Forget samples per step; 0: as many as batch_size.")
    literal_bank: bool = setting(False, help="Corrupt the bank of forget gradients as the upstream code does.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Rectified(self)]


def rectify(retained: Tensor, forget: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n', t') for one parameter tensor; unchanged where the two do not conflict.

    >>> rectify(torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 0.0]))
    (tensor([0., 1.]), tensor([-1.0000,  0.5000]))
    """
    dot = (retained * forget).sum()
    # `where`, not `if`: reading the sign would wait for the device. Where it is negative, neither norm is 0.
    new_retained = torch.where(dot < 0, retained - dot / forget.square().sum() * forget, retained)
    new_forget = torch.where(dot < 0, forget - dot / retained.square().sum() * new_retained, forget)
    return new_retained, new_forget


class Rectified(Phase):
    """Descend along the rectified and weighed gradients."""

    name = "rectified descent"
    keeps = ("optimizer", "bank")

    def __init__(self, settings: GDR) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """An epoch pairs forget and retained batches until the shorter of the two ends."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.forget_batch or s.batch_size)
        self.retained = bench.batches("adjacent", "remote", size=s.batch_size)
        self.per_epoch = min(len(self.forget), len(self.retained))
        self.capacity = math.ceil(len(self.forget.rows) / max(self.forget.size, self.retained.size))
        self.steps = s.epochs * self.per_epoch
        self.optimizer = optimizer_for(s, bench)
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """The bank starts empty."""
        self.bank: list[Tensor] = []

    def step(self, number: int) -> Logged:
        """Rectify, weigh, step."""
        bench, s = self.bench, self.settings
        epoch, place = divmod(number, self.per_epoch)
        set_learning_rate(self.optimizer, s, done=number / self.steps)
        retained_loss = bench.losses(self.retained[epoch * len(self.retained) + place]).mean()
        retained = bench.gradient([retained_loss])
        forget_loss = bench.losses(self.forget[epoch * len(self.forget) + place]).mean()
        forget = bench.gradient([-forget_loss])

        self.bank = [*self.bank, forget[-1].clone()][-self.capacity :]
        pairs = [rectify(n, t) for n, t in zip(retained, forget, strict=True)]
        retained, forget = [n for n, _ in pairs], [t for _, t in pairs]
        if epoch > 0:
            forget[-1] = self.rectify_against_bank(forget[-1])

        weight = torch.sigmoid(-s.sharpness * (retained_loss.detach() - s.tolerance))
        bench.descend(self.optimizer, combine([retained, forget], torch.stack([1 - weight, weight])))
        return {"retained_loss": retained_loss.detach(), "forget_loss": forget_loss.detach(), "weight": weight}

    def rectify_against_bank(self, forget: Tensor) -> Tensor:
        """Remove from t' of the last tensor its conflict with the mean of the conflicting gradients in the bank."""
        if self.settings.literal_bank:
            self.literal_mean(forget)  # upstream evaluates it twice
            return rectify(forget, self.literal_mean(forget))[0]
        entries = torch.stack(self.bank).flatten(1)
        conflicts = (entries @ forget.flatten() < 0).to(entries.dtype)
        mean = (conflicts @ entries / conflicts.sum().clamp(min=1)).reshape(forget.shape)
        return rectify(forget, mean)[0]  # a mean of no entries is 0, which conflicts with nothing

    def literal_mean(self, forget: Tensor) -> Tensor:
        """Return the mean of conflicting entries as upstream does: it adds them into the first of them, in the bank."""
        conflicting = [entry for entry in self.bank if (entry * forget).sum() < 0]
        if not conflicting:
            return torch.zeros_like(forget)
        for entry in conflicting[1:]:
            conflicting[0].add_(entry)
        return conflicting[0] / len(conflicting)
