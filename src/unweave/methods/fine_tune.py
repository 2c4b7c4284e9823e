"""Fine-tuning (FT): train on with the retained data only, and wait for the rest to fade.

Objective: min over θ of L_R(θ), R = adjacent ∪ remote, from the original weights. The forget data is never read.

The sources differ. The Unlearn-Sparse repository uses SGD 0.01 with momentum 0.9, weight decay 5e-4, batch 256 and
normalisation in training mode (``official``, our default). The entanglement paper prints Adam 2e-5. Its release uses
Adam 2.5e-5 with frozen statistics. All of them run 10 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unweave.data import RETAINED
from unweave.engine import OptimizerName, Phase
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method, Profiles
from unweave.settings import default


@dataclass(frozen=True, kw_only=True)
class FineTune(DescentSettings, Method):
    """Fine-tuning: train on with the retained data only, from the original weights.

    ``unweave methods ft`` lists the settings. The default profile has the values of the repository of Jia et al.,
    "Model Sparsity Can Simplify Machine Unlearning" (NeurIPS 2023).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.FineTune(epochs=3))
        >>> result.cost.sample_gradients  # five retained samples, three times
        15
    """

    name = "ft"
    summary = "Fine-tuning: train on with the retained data only."
    needs = (RETAINED,)
    profiles: ClassVar[Profiles] = {
        "official": {},  # OPTML-Group/Unlearn-Sparse, method FT
        "paper": {  # appendix "Baseline Methods"; the mode is not printed, the release's is taken
            "optimizer": "adam",
            "learning_rate": 2e-5,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "optimizer": "adam",
            "learning_rate": 2.5e-5,
            "momentum": 0.0,
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

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [TrainOn(self, subsets=("adjacent", "remote"))]


class TrainOn(Descent):
    """Descend on the retained data."""

    name = "fine-tune"
