"""Per-sample losses and functions of them, under the names that other projects rely on.

>>> import torch
>>> reference = torch.tensor([9.0, 10.0, 11.0])
>>> squared_wasserstein(torch.tensor([11.0, 9.0, 7.0]), reference)  # sorted: 7, 9, 11 against 9, 10, 11
tensor(1.6667)
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
