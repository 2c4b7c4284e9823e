"""Losses per sample and functions of them. Other projects import these names from here, so they stay.

>>> import torch
>>> import unweave as uw
>>> current, reference = torch.tensor([11.0, 9.0, 7.0]), torch.tensor([9.0, 10.0, 11.0])
>>> uw.losses.squared_wasserstein(current, reference)  # sorted: 7, 9, 11 against 9, 10, 11
tensor(1.6667)
>>> uw.losses.clipped(current, at=10.0)
tensor([10.,  9.,  7.])
"""

from unweave.maths import averaged_quantiles, clipped, divergence, odds_of, squared_wasserstein
from unweave.tasks import Loss, cross_entropy, log_odds, logits

__all__ = [
    "Loss",
    "averaged_quantiles",
    "clipped",
    "cross_entropy",
    "divergence",
    "log_odds",
    "logits",
    "odds_of",
    "squared_wasserstein",
]
