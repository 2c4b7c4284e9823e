"""U-LiRA (Hayes et al., 2024): the strongest attack here. Its shadow models are unlearned by the same method.

For every sample x, half of the shadow models were trained on it and then unlearned it. The others never saw it and
unlearned other samples. The statistic is the margin log(p_y / (1 − p_y)). Two Gaussians are fitted to each sample's
margins, and the score is the log of their likelihood ratio at the attacked model's margin. `unweave.lab.audit` trains
the shadow models; this file computes the scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unweave.errors import UsageError
from unweave.evaluation.attack import Scores1D, absent
from unweave.evaluation.metric import CONFIDENCE, Metric

PER_SAMPLE = 32  # from this many models per side on, every sample has its own variance
SMALLEST = 1e-6  # smallest standard deviation, if all models agree


def log_likelihood_ratio(target: Scores1D, shadows: Scores1D, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> Scores1D:
    """Return log N(margin | trained and unlearned) − log N(margin | never seen) of every sample.

    ``target`` holds the attacked model's margins, and ``shadows`` those of the shadow models (models × samples).
    ``seen`` marks which of them were trained on which sample. With few models each sample has its own mean, but the
    variance is shared, as Carlini et al. advise.

    >>> shadows = np.array([[4.0], [6.0], [0.0], [2.0]])
    >>> log_likelihood_ratio(np.array([5.0]), shadows, np.array([[True], [True], [False], [False]]))
    array([8.])
    """
    from scipy.stats import norm

    if shadows.shape != seen.shape or shadows.shape[1:] != target.shape:
        raise UsageError(
            f"Margins of shapes {shadows.shape} and {target.shape} do not match seen of shape {seen.shape}."
        )
    fewest = int(min(seen.sum(axis=0).min(), (~seen).sum(axis=0).min()))
    if fewest < 2:
        raise UsageError(
            f"A sample was seen, or left out, by only {fewest} shadow models, but a Gaussian needs two. Train more."
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
    """Return which model is trained on which sample: each model on a random half, each sample in half of the models.

    >>> balanced_halves(6, 4, seed=0).sum(axis=0).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    if models < 4 or models % 2:
        raise UsageError(f"{models} shadow models were requested. Use an even number, four or more.")
    generator = np.random.default_rng(seed)
    marks = []
    for _ in range(models // 2):
        half = np.zeros(samples, dtype=bool)
        half[generator.permutation(samples)[: samples // 2]] = True
        marks += [half, ~half]  # in pairs, so that both sides have equal size
    return np.stack(marks)


def left_out_ratios(margins: Scores1D, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> Scores1D:
    """Return the score of every sample in every model (models × samples): each model is attacked with all others.

    So every sample has as many scores as there are models. It was forgotten by half of these and unknown to the rest.

    >>> margins = np.array([[4.0], [6.0], [5.0], [0.0], [2.0], [1.0]])
    >>> seen = np.array([[True]] * 3 + [[False]] * 3)
    >>> (left_out_ratios(margins, seen) > 0).ravel().tolist()
    [True, True, True, False, False, False]
    """
    every = np.arange(len(margins))
    return np.stack([log_likelihood_ratio(margins[one], margins[every != one], seen[every != one]) for one in every])


def told_right(ratios: Scores1D, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[Scores1D, Scores1D, Scores1D]:
    """Return for every sample the share of models of which the attack is right, and its exact 95% interval.

    It says "forgotten" where the score is above 0. Chance is a half, if half of the models saw the sample.

    >>> seen = np.array([[True], [True], [False], [False]])
    >>> share, low, high = told_right(np.array([[1.0], [2.0], [-1.0], [3.0]]), seen)
    >>> share.item(), round(low.item(), 2), round(high.item(), 2)
    (0.75, 0.19, 0.99)
    """
    from scipy.stats import beta

    right, models = ((ratios > 0) == seen).sum(axis=0), len(ratios)
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):  # the ends, which `where` replaces
        low = np.where(right == 0, 0.0, beta.ppf(tail, right, models - right + 1))
        high = np.where(right == models, 1.0, beta.ppf(1 - tail, right + 1, models - right))
    return right / models, low, high


def no_ulira() -> list[Metric]:
    """Return the absent U-LiRA metrics of a model without shadow models."""
    note = "U-LiRA needs shadow models: see `unweave audit`."
    return [
        m for subset in ("forget", "adjacent") for m in absent("mia_ulira", split="train", subset=subset, note=note)
    ]
