"""Gradient ascent (GA): raise the loss on the forget data and look at nothing else.

Objective: max over θ of L_f(θ). It is unbounded, so the result is a point on a curve that depends on when one
stops: read the history, not only the end.

Sources differ: the Unlearn-Sparse repository uses SGD 1e-4 with momentum 0.9, weight decay 5e-4, 5 epochs, and
normalisation in training mode (``official``, our default); the entanglement paper prints SGD 1e-5 for 7 epochs
on CIFAR-100, its release runs SGD 1.5e-5 for 10 epochs, without momentum and with frozen statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method


@dataclass(frozen=True, kw_only=True)
class GradientAscentSettings(DescentSettings):
    """Settings of gradient ascent."""


class Ascend(Descent):
    """Ascend on the forget data."""

    name = "ascend"


GA = Method(
    name="ga",
    summary="Gradient ascent: raise the loss on the forget data, heedless of the rest.",
    settings=GradientAscentSettings,
    phases=lambda settings: [Ascend(settings, subsets=("forget",), ascend=True)],
    needs=("forget",),
    profiles={
        "official": {  # OPTML-Group/Unlearn-Sparse, method GA
            "optimizer": "sgd",
            "learning_rate": 1e-4,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "epochs": 5,
            "batch_size": 256,
            "normalisation": "train",
        },
        "paper": {  # appendix "Baseline Methods", CIFAR-100; the mode is not printed, the release's is taken
            "optimizer": "sgd",
            "learning_rate": 1e-5,
            "epochs": 7,
            "batch_size": 128,
            "normalisation": "eval",
        },
        "released": {
            "optimizer": "sgd",
            "learning_rate": 1.5e-5,
            "epochs": 10,
            "batch_size": 128,
            "normalisation": "eval",
        },
    },
)
