"""ℓ1-sparse: fine-tune on the retained data with a fading ℓ1 penalty (Jia et al., "Model Sparsity Can Simplify
Machine Unlearning", NeurIPS 2023).

Objective in epoch e of E: min over θ of L_R(θ) + a_e ‖θ‖₁ with a_e = a (1 − e/(E − E₀)), 0 in the last E₀ epochs. The
norm covers every trainable parameter, by plain subgradient; nothing is pruned afterwards.

Sources differ: the Unlearn-Sparse repository (``official``, our default) uses SGD 0.01 with momentum 0.9, weight
decay 5e-4, batch 256, training mode, and a placeholder a = 0.2 that must be set: we take 5e-4, the entanglement
paper's for CIFAR-100. That paper prints SGD 1e-4 and describes the method as gradient ascent with ℓ1; its release
is the retained-data form with SGD 1e-3 and frozen statistics. With Adam the penalty is renormalised and far
harsher than its weight suggests.
"""

from __future__ import annotations

from dataclasses import dataclass

from unweave.data import RETAINED
from unweave.engine import Logged
from unweave.errors import UsageError
from unweave.methods.descent import Descent, DescentSettings, set_learning_rate
from unweave.methods.method import Method
from unweave.runtime import total
from unweave.settings import Around, setting


@dataclass(frozen=True, kw_only=True)
class L1SparseSettings(DescentSettings):
    """Settings of ℓ1-sparse."""

    sparsity: float = setting(
        5e-4, at_least=0, search=Around(30), help="Weight of the ℓ1 norm in the first epoch; the paper's a."
    )
    plain_epochs: int = setting(0, at_least=0, help="Last epochs without the penalty; E₀.")


class SparseFineTune(Descent):
    """Descend on the retained data plus the fading ℓ1 norm."""

    name = "sparse fine-tune"
    settings: L1SparseSettings

    def __init__(self, settings: L1SparseSettings) -> None:
        super().__init__(settings, subsets=("adjacent", "remote"))
        if settings.plain_epochs > settings.epochs:
            raise UsageError(f"plain_epochs is {settings.plain_epochs}, more than the {settings.epochs} epochs.")

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


L1_SPARSE = Method(
    name="l1-sparse",
    summary="Fine-tuning on the retained data with a fading ℓ1 penalty.",
    settings=L1SparseSettings,
    phases=lambda settings: [SparseFineTune(settings)],
    needs=(RETAINED,),
    profiles={
        "official": {  # OPTML-Group/Unlearn-Sparse, FT_prune
            "optimizer": "sgd",
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "epochs": 10,
            "batch_size": 256,
            "normalisation": "train",
        },
        "paper": {  # appendix "Baseline Methods", CIFAR-100; epochs and mode as released
            "optimizer": "sgd",
            "learning_rate": 1e-4,
            "momentum": 0.9,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "optimizer": "sgd",
            "learning_rate": 1e-3,
            "momentum": 0.9,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
    },
)
