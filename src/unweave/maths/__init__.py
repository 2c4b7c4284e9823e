"""Mathematics on tensors: distances between distributions of losses, log-odds, and projections of gradients.

>>> import torch
>>> squared_wasserstein(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 2.0]))  # sorted: 1, 3 against 2, 3
tensor(0.5000)
>>> remove_span([torch.tensor([1.0, 1.0])], basis=[[torch.tensor([2.0, 0.0])]])
[tensor([0., 1.])]
"""

from unweave.maths.distributions import averaged_quantiles, clipped, divergence, odds_of, squared_wasserstein
from unweave.maths.inputs import require_tensor, require_vector
from unweave.maths.spans import Gradient, combine, gram_matrix, remove_span, squared_lengths

__all__ = [
    "Gradient",
    "averaged_quantiles",
    "clipped",
    "combine",
    "divergence",
    "gram_matrix",
    "odds_of",
    "remove_span",
    "require_tensor",
    "require_vector",
    "squared_lengths",
    "squared_wasserstein",
]
