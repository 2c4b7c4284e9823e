"""RMIA, the relative membership attack (Zarifzadeh et al., 2024). It is strong with a single reference model.

    r(x) = p_target(y|x) / p̂(x),    p̂ = ½ (p_in + p_out),    score(x) = share of population samples z with r(x) > r(z)

where p_out is the mean over reference models that never saw x, and p_in the mean over those that did. Retrained models
never saw the forget set, so p_in is estimated as a·p_out + (1 − a). The authors tune a by attacking one reference model
with the others, which needs samples that only some of them saw. Retrained models all saw the same samples, so a is
fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unweave.evaluation import attack
from unweave.evaluation.attack import FEWEST, Scores1D
from unweave.evaluation.membership import comparable, no_probabilities, obstacle
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import Observed, Predictions, array

OFFSET = 0.3  # the authors' value for CIFAR-10


def confidences(predictions: Predictions) -> Scores1D:
    """Return p_y of every sample."""
    return array(predictions.of_labels(predictions.probabilities))


def expected_confidence(
    references: Scores1D, *, seen: np.ndarray[Any, np.dtype[np.bool_]] | None = None, offset: float = OFFSET
) -> Scores1D:
    """Return p̂ of every sample from the references' confidences (models × samples).

    ``seen`` marks which model was trained on which sample. The default is none.

    >>> expected_confidence(np.array([[0.5], [0.7]]), offset=0.5)  # p_out 0.6, p_in 0.8
    array([0.7])
    >>> expected_confidence(np.array([[0.5], [0.9]]), seen=np.array([[False], [True]]))
    array([0.7])
    """
    seen = np.zeros_like(references, dtype=bool) if seen is None else seen
    unseen_by, seen_by = (~seen).sum(axis=0), seen.sum(axis=0)
    outside = (references * ~seen).sum(axis=0) / np.maximum(unseen_by, 1)
    guess = offset * outside + 1 - offset
    inside = np.where(seen_by > 0, (references * seen).sum(axis=0) / np.maximum(seen_by, 1), guess)
    expected: Scores1D = (inside + outside) / 2
    return expected


def log_ratios(
    target: Scores1D,
    references: Scores1D,
    *,
    seen: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
    offset: float = OFFSET,
) -> Scores1D:
    """Return log r(x): the target's confidence in each sample relative to the references'.

    Values are rounded. Otherwise the noise of float32 logits would rank samples that all models are sure of.
    """
    # A confidence that rounds to 0 has no logarithm.
    smallest = np.finfo(np.float64).tiny
    expected = np.maximum(expected_confidence(references, seen=seen, offset=offset), smallest)
    found: Scores1D = (np.log(np.maximum(target, smallest)) - np.log(expected)).round(6)
    return found


def relative_scores(ratios: Scores1D, population: Scores1D) -> Scores1D:
    """Return the share of the population whose ratio is below each sample's.

    >>> relative_scores(np.array([1.0, 2.5]), np.array([1.0, 2.0, 3.0, 0.5]))
    array([0.25, 0.75])
    """
    below: Scores1D = np.searchsorted(np.sort(population), ratios, side="left") / len(population)
    return below


def rmia_scores(
    target: Observed, references: Sequence[Observed], subset: str, *, offset: float = OFFSET
) -> tuple[Scores1D, Scores1D]:
    """Return the scores of a training subset and of comparable test samples. No reference may have seen them."""
    members, others, population = (
        log_ratios(
            confidences(pick(target)), np.stack([confidences(pick(model)) for model in references]), offset=offset
        )
        for pick in (
            lambda model: model("train", subset),
            lambda model: comparable(model, subset)[0],
            lambda model: model("test", "remote"),
        )
    )
    return relative_scores(members, population), relative_scores(others, population)


def rmia_metrics(
    target: Observed, references: Sequence[Observed], *, resamples: int = 200, seed: int = 0
) -> list[Metric]:
    """Attack the forget set. The references are retrained models, which never saw it."""
    note = obstacle(target, "forget") or no_probabilities(target("train", "forget"))
    if not references:
        note = note or "No reference was given, but RMIA needs one to four retrained models."
    elif not note and len(target("test", "remote")) < FEWEST:
        note = f"RMIA needs at least {FEWEST} remote test samples, but there are {len(target('test', 'remote'))}."
    if note:
        found = attack.absent("mia_rmia", split="train", subset="forget", note=note)
    else:
        members, others = rmia_scores(target, references, "forget")
        numbers = attack.judge(members, others, threshold=0.5, resamples=resamples, seed=seed)
        found = attack.as_metrics("mia_rmia", numbers, split="train", subset="forget", others=len(others))
        found = [metric.beside(reference=_on_references(references, metric.metric), before=None) for metric in found]
    reason = "Retrained references saw the adjacent data. In an audit, some shadow models did not see it."
    return [*found, *attack.absent("mia_rmia", split="train", subset="adjacent", note=note or reason)]


def _on_references(references: Sequence[Observed], name: str) -> float | None:
    """Attack each retrained model, with the others as references, and return the mean."""
    if len(references) < 2:
        return None
    found = []
    for place, target in enumerate(references):
        scores = rmia_scores(target, [*references[:place], *references[place + 1 :]], "forget")
        found.append(attack.judge(*scores, threshold=0.5, resamples=0)[name.removeprefix("mia_rmia_")].value)
    return float(np.mean(found))
