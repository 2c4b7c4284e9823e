"""MUNBa: forgetting and keeping bargain over every step.

Wu and Harandi, "MUNBa: Machine Unlearning via Nash Bargaining", ICCV 2025.

The two players are g_r = ∇ CE of a retained batch and g_f = ∇ CE of a forget batch with uniformly random labels. The
Nash solution GᵀG a = 1/a has, for two players at angle φ, the closed form

    a_i = 1 / (‖g_i‖ √(1 + cos φ)),    d = a_r g_r + a_f g_f,    ‖d‖ = √2

The step is along d clipped to norm 1, so the learning rate alone sets its length.

Upstream and the entanglement paper's release compute the weights from another expression, with an absolute 1e-8 in
its denominators. That term dominates where the retained gradient is small, as in a model that fits its data. The
weights are then not the Nash solution. Where a weight is not positive, they use L_r + 0.1 L_f instead. Our default,
``literal_weights=True``, is theirs; we sum dot products in float64, they in float32. Upstream pairs batches until the
forget data ends, and trains on the rest of the retained data alone, unclipped (``pairing="once"``, our default). The
release begins the forget data again (``"cycle"``), with frozen statistics.

``official`` is upstream: SGD 0.01 with momentum 0.9, weight decay 5e-4, batch 256, 10 epochs and training mode.
``closed-form`` has the same values with the closed form above. So has ``paper``, which takes the equations as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unweave.data import RETAINED, Batch
from unweave.engine import Logged, OptimizerName, Phase, Workbench
from unweave.maths import combine, gram_matrix
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.methods.relabel import chance, random_labels
from unweave.settings import OneOf, default, setting

# Opposite gradients leave nothing to bargain over, so the cosine stays above −1.
OPPOSITE = 1e-6


@dataclass(frozen=True, kw_only=True)
class MUNBa(DescentSettings, Method):
    """MUNBa: the gradients of forgetting and keeping bargain over every step.

    ``unweave methods munba`` lists the settings. Reference: Wu and Harandi, "MUNBa: Machine Unlearning via Nash
    Bargaining" (ICCV 2025).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.MUNBa(epochs=3), guard=None)
        >>> all(0 < share < 1 for share in result.history.column("forget_share"))
        True
    """

    name = "munba"
    summary = "Forgetting and keeping bargain over every step (Nash)."
    needs = ("forget", RETAINED)
    needs_classes = True
    profiles: ClassVar[Profiles] = {
        "official": {},  # JingWu321/MUNBa, Classification
        "closed-form": {"literal_weights": False},
        "paper": {  # appendix "Baseline Methods", CIFAR-100: "other values default"
            "learning_rate": 0.03,
            "batch_size": 128,
            "normalisation": "eval",
            "literal_weights": False,
        },
        "released": {
            "epochs": 5,
            "batch_size": 128,
            "normalisation": "eval",
            "pairing": "cycle",
        },
    }

    optimizer: OptimizerName = default("sgd")
    learning_rate: float = default(0.01)
    momentum: float = default(0.9)
    weight_decay: float = default(5e-4)
    batch_size: int = default(256)
    pairing: Literal["once", "cycle"] = setting(
        "once", help="once: bargain until the forget data of the epoch ends. cycle: in every step."
    )
    forget_batch: int = setting(0, at_least=0, help="Forget samples per step; 0: as many as batch_size.")
    literal_weights: bool = setting(
        True,
        search=OneOf(True, False),
        help="true: compute the weights as the authors' code does, with 1e-8 in it. false: in closed form.",
    )

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Bargain(self)]


def bargain(gram: Tensor) -> Tensor:
    """Return the Nash weights (a_r, a_f) from the 2×2 matrix of dot products.

    >>> bargain(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
    tensor([0.5000, 1.0000])
    """
    lengths = gram.diagonal().sqrt()
    scale = torch.where(lengths > 0, 1 / lengths, 0)  # a gradient of 0 gets no weight
    cosine = (gram[0, 1] * scale.prod()).clamp(min=-1 + OPPOSITE, max=1)
    return scale / (1 + cosine).sqrt()


def literal_bargain(gram: Tensor) -> Tensor:
    """Return the weights as upstream computes them, with its fallback (1, 0.1)."""
    g11, g12, g22 = gram[0, 0], gram[0, 1], gram[1, 1]
    squared = (g11 * g22 - g12 * (g11 * g22).sqrt()) / (g11.square() * g22 - g11 * g12.square() + 1e-8)
    retained = squared.sqrt()
    forget = (1 - g11 * squared) / (g12 * retained + 1e-8)
    weights = torch.stack([retained, forget])
    usable = (weights > 0).all() & weights.isfinite().all()
    return torch.where(usable, weights, weights.new_tensor([1.0, 0.1]))


class Bargain(Phase):
    """Step along the bargain of the retained and the forget gradient."""

    name = "bargain"
    keeps = ("optimizer",)

    def __init__(self, settings: MUNBa) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """An epoch is one pass over the retained data."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.forget_batch or s.batch_size)
        self.retained = bench.batches("adjacent", "remote", size=s.batch_size)
        self.steps = s.epochs * len(self.retained)
        self.classes = bench.classes(self.forget)
        self.optimizer = optimizer_for(s, bench)
        bench.mode(s.normalisation)

    def step(self, number: int) -> Logged:
        """Bargain or, once the epoch has no forget data left, train on retained data."""
        bench, s = self.bench, self.settings
        epoch, place = divmod(number, len(self.retained))
        set_learning_rate(self.optimizer, s, done=number / self.steps)
        retained_loss = bench.losses(self.retained[number]).mean()
        retained = bench.gradient([retained_loss])
        if s.pairing == "once" and place >= len(self.forget):
            bench.descend(self.optimizer, retained)
            return {"retained_loss": retained_loss.detach()}

        turn = number if s.pairing == "cycle" else epoch * len(self.forget) + place
        forget_loss = bench.losses(self.relabelled(self.forget[turn], turn)).mean()
        forget = bench.gradient([forget_loss])
        gram = gram_matrix([retained, forget])
        weights = literal_bargain(gram) if s.literal_weights else bargain(gram)
        length = (weights @ gram @ weights).clamp(min=0).sqrt()
        shrink = (1 / (length + 1e-6)).clamp(max=1)  # to norm 1, as gradient clipping does
        bench.descend(self.optimizer, combine([retained, forget], weights * shrink))
        return {
            "retained_loss": retained_loss.detach(),
            "relabelled_loss": forget_loss.detach(),
            "forget_share": weights[1] / weights.sum(),
        }

    def relabelled(self, batch: Batch, turn: int) -> Batch:
        """Give a forget batch random labels."""
        true = self.bench.labels(batch)
        drawn = chance(*true.shape, seed=self.bench.seed, turn=turn, device=batch.rows.device)
        return batch.with_labels(random_labels(true, drawn, classes=self.classes))
