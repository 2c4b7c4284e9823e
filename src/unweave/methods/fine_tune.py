"""Fine-tuning (FT): go on training on the retained data and hope that the rest fades.

Objective: min over θ of L_R(θ), R = adjacent ∪ remote, starting from the original weights. The forget data is
never read.

Sources differ: the Unlearn-Sparse repository uses SGD 0.01 with momentum 0.9, weight decay 5e-4, batch 256 and
normalisation in training mode (``official``, our default); the entanglement paper prints Adam 2e-5, its
release uses Adam 2.5e-5 with frozen statistics. All run 10 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

from unweave.data import RETAINED
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings(DescentSettings):
    """Settings of fine-tuning."""


class FineTune(Descent):
    """Descend on the retained data."""

    name = "fine-tune"


FT = Method(
    name="ft",
    summary="Fine-tuning: train on, on the retained data only.",
    settings=FineTuneSettings,
    phases=lambda settings: [FineTune(settings, subsets=("adjacent", "remote"))],
    needs=(RETAINED,),
    profiles={
        "official": {  # OPTML-Group/Unlearn-Sparse, method FT
            "optimizer": "sgd",
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "epochs": 10,
            "batch_size": 256,
            "normalisation": "train",
        },
        "paper": {  # appendix "Baseline Methods"; the mode is not printed, the release's is taken
            "optimizer": "adam",
            "learning_rate": 2e-5,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "optimizer": "adam",
            "learning_rate": 2.5e-5,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
    },
)
