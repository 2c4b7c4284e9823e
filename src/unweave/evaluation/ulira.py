"""U-LiRA (Hayes et al., 2024): the strongest attack here, with shadow models that were unlearned the same way.

For every sample x, half of the shadow models were trained on it and then made to forget it; the others never saw it,
and forgot something else. The statistic is the margin log(p_y / (1 − p_y)). Two Gaussians are fitted to each sample's
margins, and the attacked model is scored by the log of their likelihood ratio. Shadow models are trained by
`unweave.lab.audit`; here are the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unweave.errors import UsageError
from unweave.evaluation.attack import Scores1D, absent
from unweave.evaluation.metric import Metric

PER_SAMPLE = 32  # models on each side from which every sample gets its own variance
SMALLEST = 1e-6  # of a standard deviation, where all models agree


def log_likelihood_ratio(target: Scores1D, shadows: Scores1D, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> Scores1D:
    """Return log N(margin | trained and unlearned) − log N(margin | never seen) of every sample.

    ``target`` holds the attacked model's margins, ``shadows`` the shadow models' (models × samples), ``seen`` which of
    them were trained on which sample. With few models the mean is each sample's own and the variance is shared, as
    Carlini et al. advise.

    >>> shadows = np.array([[4.0], [6.0], [0.0], [2.0]])
    >>> log_likelihood_ratio(np.array([5.0]), shadows, np.array([[True], [True], [False], [False]]))
    array([8.])
    """
    from scipy.stats import norm

    if shadows.shape != seen.shape or shadows.shape[1:] != target.shape:
        raise UsageError(f"Margins of shape {shadows.shape} and {target.shape} do not fit marks of shape {seen.shape}.")
    fewest = int(min(seen.sum(axis=0).min(), (~seen).sum(axis=0).min()))
    if fewest < 2:
        raise UsageError(
            f"Some sample was seen, or left out, by only {fewest} shadow models; a Gaussian needs two. Train more."
        )
    likelihoods = []
    for side in (seen, ~seen):
        margins = np.where(side, shadows, np.nan)
        centre, variance = np.nanmean(margins, axis=0), np.nanvar(margins, axis=0)
        if fewest < PER_SAMPLE:
            variance = np.full_like(variance, variance.mean())
        likelihoods.append(norm.logpdf(target, centre, np.maximum(np.sqrt(variance), SMALLEST)))
    ratio: Scores1D = likelihoods[0] - likelihoods[1]
    return ratio


def balanced_halves(samples: int, models: int, *, seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which model is trained on which sample: a random half each, and every sample in half of the models.

    >>> balanced_halves(6, 4, seed=0).sum(axis=0).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    if models < 4 or models % 2:
        raise UsageError(f"{models} shadow models were asked for; take an even number of four or more.")
    generator = np.random.default_rng(seed)
    marks = []
    for _ in range(models // 2):
        half = np.zeros(samples, dtype=bool)
        half[generator.permutation(samples)[: samples // 2]] = True
        marks += [half, ~half]  # the pair keeps the two sides equally large
    return np.stack(marks)


def no_ulira() -> list[Metric]:
    """Return the numbers of a model that no shadow models were trained for."""
    note = "It needs shadow models: see `unweave audit`."
    return [
        m for subset in ("forget", "adjacent") for m in absent("mia_ulira", split="train", subset=subset, note=note)
    ]
