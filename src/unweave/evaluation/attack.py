"""Judge an attack by its scores: AUC, balanced accuracy, and true-positive rate at a low false-positive rate.

An attack gives every sample a score. A higher score means more confidence that the model was trained on the sample.
The attack is judged on training samples (members) and comparable samples outside the training data (others).

>>> found = judge(np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]), threshold=2.5, resamples=0)
>>> found["auc"].value, found["tpr_at_1_percent_fpr"].value
(1.0, 1.0)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from unweave.evaluation.metric import CONFIDENCE, Estimate, Metric

Scores1D: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

RATES = {"tpr_at_1_percent_fpr": 0.01, "tpr_at_0_1_percent_fpr": 0.001}
NUMBERS = ("auc", "balanced_accuracy", *RATES)
FEWEST = 10  # with fewer members or others a rate means nothing


def judge(
    members: Scores1D, others: Scores1D, *, threshold: float = 0.0, resamples: int = 200, seed: int = 0
) -> dict[str, Estimate]:
    """Return the four numbers of an attack, each with a bootstrap interval over the samples.

    The attack calls a sample a member if its score is above ``threshold``. ``resamples=0`` gives no intervals.
    """
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score, roc_curve

    truth = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    scores = np.concatenate([members, others])
    false_alarms, hits, _ = roc_curve(truth, scores, drop_intermediate=False)
    values = [
        roc_auc_score(truth, scores),
        balanced_accuracy_score(truth, scores > threshold),
        *(hits[false_alarms <= rate].max() for rate in RATES.values()),
    ]
    bounds = _bootstrap(members, others, threshold, resamples, seed) if resamples else [(None, None)] * len(values)
    return {name: Estimate(float(v), *b) for name, v, b in zip(NUMBERS, values, bounds, strict=True)}


def as_metrics(
    attack: str, numbers: dict[str, Estimate], *, split: str, subset: str, others: int, note: str = ""
) -> list[Metric]:
    """Return the numbers of an attack as metrics, with a note on rates that the sample is too small for."""
    found = []
    for name, estimate in numbers.items():
        small = name in RATES and others * RATES[name] < 1
        few = f"There are only {others} non-members, so this is the rate without any false positive." if small else ""
        words = " ".join(filter(None, (note, few)))
        found.append(
            Metric.of(f"{attack}_{name}", estimate, better="reference", split=split, subset=subset, note=words)
        )
    return found


def absent(attack: str, *, split: str, subset: str, note: str) -> list[Metric]:
    """Return the numbers of an attack that could not be run, as absent metrics."""
    return [
        Metric.absent(f"{attack}_{name}", better="reference", note=note, split=split, subset=subset) for name in NUMBERS
    ]


def _bootstrap(
    members: Scores1D, others: Scores1D, threshold: float, resamples: int, seed: int
) -> list[tuple[float, float]]:
    from scipy.stats import bootstrap

    def numbers(members: Scores1D, others: Scores1D, axis: int = -1) -> Scores1D:
        balanced = ((members > threshold).mean(axis) + (others <= threshold).mean(axis)) / 2
        return np.stack(
            [_auc(members, others), balanced, *(_hits_at(rate, members, others) for rate in RATES.values())]
        )

    interval = bootstrap(
        (members, others),
        numbers,
        n_resamples=resamples,
        vectorized=True,
        batch=max(1, 2_000_000 // (len(members) + len(others))),  # limits memory on large sets
        method="percentile",  # BCa fails if all resamples give the same number, as with separable scores
        confidence_level=CONFIDENCE,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return [(float(low), float(high)) for low, high in zip(interval.low, interval.high, strict=True)]


def _auc(members: Scores1D, others: Scores1D) -> Scores1D:
    """AUC along the last axis: the Mann–Whitney statistic divided by the number of pairs."""
    from scipy.stats import mannwhitneyu

    with np.errstate(divide="ignore", invalid="ignore"):  # constant scores break its p-value, which is unused
        found = mannwhitneyu(members, others, axis=-1, method="asymptotic").statistic
    area: Scores1D = found / (members.shape[-1] * others.shape[-1])
    return area


def _hits_at(rate: float, members: Scores1D, others: Scores1D) -> Scores1D:
    """Share of members above the threshold that at most ``rate`` of the others exceed, along the last axis."""
    place = others.shape[-1] - 1 - int(rate * others.shape[-1])
    limit = np.partition(others, place, axis=-1)[..., place, None]
    hits: Scores1D = (members > limit).mean(axis=-1)
    return hits
