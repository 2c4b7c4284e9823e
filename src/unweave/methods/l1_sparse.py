"""ℓ1-sparse: fine-tune on the retained data with a fading ℓ1 penalty.

Jia et al., "Model Sparsity Can Simplify Machine Unlearning", NeurIPS 2023.

Objective in epoch e of E: min over θ of L_R(θ) + a_e ‖θ‖₁ with a_e = a (1 − e/(E − E₀)), 0 in the last E₀ epochs. The
norm covers every trainable parameter, by plain subgradient. Nothing is pruned afterwards.

The sources differ. The Unlearn-Sparse repository (``official``, our default) uses SGD 0.01 with momentum 0.9, weight
decay 5e-4, batch 256 and training mode. Its a = 0.2 is a placeholder that must be set. We take 5e-4, the entanglement
paper's value for CIFAR-100. That paper prints SGD 1e-4 and describes the method as gradient ascent with ℓ1. Its release
is the form with retained data, with SGD 1e-3 and frozen statistics. Adam rescales the penalty, which is then far
stronger than its weight suggests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unweave.data import RETAINED
from unweave.engine import Logged, OptimizerName, Phase
from unweave.errors import UsageError
from unweave.methods.descent import Descent, DescentSettings, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.runtime import total
from unweave.settings import Around, default, setting


@dataclass(frozen=True, kw_only=True)
class L1Sparse(DescentSettings, Method):
    """ℓ1-sparse: fine-tuning on the retained data with a fading ℓ1 penalty.

    ``unweave methods l1-sparse`` lists the settings. Reference: Jia et al., "Model Sparsity Can Simplify Machine
    Unlearning" (NeurIPS 2023).

    Raises:
        UsageError: From `phases`, if ``plain_epochs`` is more than ``epochs``.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> method = uw.L1Sparse(sparsity=0.5, epochs=3)
        >>> norms = uw.unlearn(torch.nn.Linear(6, 2), split, method, guard=None).history.column("l1_norm")
        >>> norms[0] > norms[1] > norms[2]
        True
    """

    name = "l1-sparse"
    summary = "Fine-tuning on the retained data with a fading ℓ1 penalty."
    needs = (RETAINED,)
    profiles: ClassVar[Profiles] = {
        "official": {},  # OPTML-Group/Unlearn-Sparse, FT_prune
        "paper": {  # appendix "Baseline Methods", CIFAR-100; epochs and mode as released
            "learning_rate": 1e-4,
            "weight_decay": 0.0,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "learning_rate": 1e-3,
            "weight_decay": 0.0,
            "batch_size": 128,
            "normalisation": "eval",
        },
    }

    optimizer: OptimizerName = default("sgd")
    learning_rate: float = default(0.01)
    momentum: float = default(0.9)
    weight_decay: float = default(5e-4)
    batch_size: int = default(256)
    sparsity: float = setting(
        5e-4, at_least=0, search=Around(30), help="Weight of the ℓ1 norm in the first epoch; the paper's a."
    )
    plain_epochs: int = setting(0, at_least=0, help="Last epochs without the penalty; E₀.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [SparseFineTune(self)]


class SparseFineTune(Descent):
    """Descend on the retained data plus the fading ℓ1 norm."""

    name = "sparse fine-tune"
    settings: L1Sparse

    def __init__(self, settings: L1Sparse) -> None:
        super().__init__(settings, subsets=("adjacent", "remote"))
        if settings.plain_epochs > settings.epochs:
            raise UsageError(
                f"plain_epochs is {settings.plain_epochs}, more than the {settings.epochs} epochs. Lower it."
            )

    def penalty(self, epoch: int) -> float:
        """Return a_e."""
        s = self.settings
        fading = s.epochs - s.plain_epochs
        return s.sparsity * (1 - epoch / fading) if epoch < fading else 0.0

    def step(self, number: int) -> Logged:
        """Take one optimiser step on one batch and the norm."""
        bench = self.bench
        set_learning_rate(self.optimizer, self.settings, done=number / self.steps)
        loss = bench.losses(self.batches[number]).mean()
        norm = total(parameter.abs().sum() for parameter in bench.parameters)
        objective = loss + self.penalty(number // len(self.batches)) * norm
        bench.descend(self.optimizer, bench.gradient([objective]))
        return {"loss": loss.detach(), "l1_norm": norm.detach()}
