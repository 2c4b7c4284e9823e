"""Tensors in, tensors out: distances between distributions, log-odds, projection."""

from unweave.maths.distributions import averaged_quantiles, clipped, divergence, odds_of, squared_wasserstein
from unweave.maths.spans import Gradient, combine, gram_matrix, remove_span

__all__ = [
    "Gradient",
    "averaged_quantiles",
    "clipped",
    "combine",
    "divergence",
    "gram_matrix",
    "odds_of",
    "remove_span",
    "squared_wasserstein",
]
