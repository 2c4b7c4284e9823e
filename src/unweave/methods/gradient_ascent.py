"""Gradient ascent (GA): raise the loss on the forget data and ignore all other data.

Objective: max over θ of L_f(θ). It has no upper bound, so the result depends on when the run stops. Read the whole
history, not only its end.

The sources differ. The Unlearn-Sparse repository uses SGD 1e-4 with momentum 0.9, weight decay 5e-4, 5 epochs and
normalisation in training mode (``official``, our default). The entanglement paper prints SGD 1e-5 for 7 epochs on
CIFAR-100. Its release runs SGD 1.5e-5 for 10 epochs, without momentum and with frozen statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unweave.engine import OptimizerName, Phase
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method, Profiles
from unweave.settings import default


@dataclass(frozen=True, kw_only=True)
class GradientAscent(DescentSettings, Method):
    """Gradient ascent: raise the loss on the forget data and ignore all other data.

    ``unweave methods ga`` lists the settings. The default profile has the values of the repository of Jia et al.,
    "Model Sparsity Can Simplify Machine Unlearning" (NeurIPS 2023).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> method = uw.GradientAscent(learning_rate=0.1, epochs=3)
        >>> losses = uw.unlearn(torch.nn.Linear(6, 2), split, method, guard=None).history.column("loss")
        >>> losses[0] < losses[1] < losses[2]
        True
    """

    name = "ga"
    summary = "Gradient ascent: raise the loss on the forget data, ignore the rest."
    needs = ("forget",)
    profiles: ClassVar[Profiles] = {
        "official": {},  # OPTML-Group/Unlearn-Sparse, method GA
        "paper": {  # appendix "Baseline Methods", CIFAR-100; the mode is not printed, the release's is taken
            "learning_rate": 1e-5,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "epochs": 7,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "learning_rate": 1.5e-5,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
    }

    optimizer: OptimizerName = default("sgd")
    learning_rate: float = default(1e-4)
    momentum: float = default(0.9)
    weight_decay: float = default(5e-4)
    epochs: int = default(5)
    batch_size: int = default(256)

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Ascend(self, subsets=("forget",), ascend=True)]


class Ascend(Descent):
    """Ascend on the forget data."""

    name = "ascend"
