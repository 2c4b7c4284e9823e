"""Distances between the model and models that were retrained without the forget data.

Every number is computed against each reference and averaged; its interval spans all references. With two or more
references the same number between two retrained models is given as its ``reference``: a smaller distance is no
improvement.

- **ToW** (tug of war; Zhao et al., 2024) = Π (1 − |accuracy − accuracy of retrain|) over forget, retained, test data;
  **ToW-MIA** replaces forget accuracy by the SVC attack's confidence number. **ToW split** has separate factors for
  adjacent and remote data, train and test, so that the many remote samples do not hide harm to the neighbours.
- **KLOM** (Rinberg et al., 2025) compares the margins of several unlearned and several retrained models. Its reference
  needs twice as many retrained models.
- Other distances compare predictions (total variation and Jensen–Shannon, bounded by 1; other work uses the Euclidean
  activation distance), loss distributions (W₂) and weights (one distance over all parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from unweave.data import RETAINED, SUBSETS
from unweave.errors import UsageError
from unweave.evaluation.attack import Scores1D
from unweave.evaluation.membership import BLIND, SupportVectorAttack, no_probabilities, obstacle
from unweave.evaluation.metric import CONFIDENCE, Estimate, Metric, mean
from unweave.evaluation.predictions import NOT_TOLD, Observed, Predictions, array, mean_over_labels
from unweave.maths import squared_wasserstein

T = TypeVar("T")
BINS, CLIP, FLOOR = 20, 100.0, 1e-5  # for KLOM, as in its authors' benchmark
TOW_FACTORS = {
    "tow": (("train", ("forget",)), ("train", RETAINED), ("test", SUBSETS)),
    "tow_split": (
        ("train", ("forget",)),
        *((part, (subset,)) for part in ("train", "test") for subset in RETAINED),
    ),
}


def tug_of_war(differences: Sequence[Scores1D]) -> Estimate:
    """Return Π (1 − dᵢ), dᵢ = |mean of differences i|, with an interval (none if a factor has a single sample).

    A difference is 1 or −1 if exactly one of the two models is correct on a sample, else 0.

    The interval is conservative. Each of the k means gets a normal interval dᵢ ± z seᵢ at level 1 − 0.05 / k, so all
    of them hold together with probability 95% at least. The limits are the products of their worst and of their best
    ends, within [0, 1]. A bootstrap is biased: resampling adds noise to means near 0, which increases their absolute
    values. For a model equal to retraining the product would fall below 1, and its interval would miss the value.

    >>> tug_of_war([np.array([1.0, 0.0]), np.array([0.0, 0.0, 0.0, -1.0])]).value  # (1 − ½) (1 − ¼)
    0.375
    >>> low, high = tug_of_war([np.array([1.0, -1.0] * 50)])[1:]  # a mean of 0, its standard error 0.1
    >>> round(low, 2), high
    (0.8, 1.0)
    """
    from scipy.stats import norm, sem

    apart = np.array([abs(difference.mean()) for difference in differences])
    value = float(np.prod(1 - apart))
    if min(map(len, differences)) < 2:
        return Estimate(value)
    reach = norm.isf((1 - CONFIDENCE) / 2 / len(apart)) * np.array([sem(difference) for difference in differences])
    low, high = np.prod(1 - np.minimum(1, apart + reach)), np.prod(1 - np.maximum(0, apart - reach))
    return Estimate(value, float(low), float(high))


def klom(unlearned: Scores1D, retrained: Scores1D) -> Scores1D:
    """Return KL(retrained ‖ unlearned) of every sample's margins, from histograms over the models (models × samples).

    >>> klom(np.array([[0.0], [0.0]]), np.array([[1.0], [1.0]])).round(2)  # no overlap: −log 10⁻⁵
    array([11.51])
    """
    from scipy.special import rel_entr

    if unlearned.ndim != 2 or unlearned.shape != retrained.shape:
        raise UsageError(
            f"KLOM needs equally many unlearned and retrained models on the same samples, but the margins have "
            f"the shapes {unlearned.shape} and {retrained.shape}."
        )
    both = [np.clip(margins, -CLIP, CLIP) for margins in (unlearned, retrained)]
    low, high = np.concatenate(both).min(axis=0), np.concatenate(both).max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    shares = []
    for margins in both:
        places = np.minimum((margins - low) / width * BINS, BINS - 1).astype(int)
        counts = np.stack([(places == number).sum(axis=0) for number in range(BINS)])
        shares.append(np.maximum(counts / len(margins), FLOOR))
    divergence: Scores1D = np.maximum(rel_entr(shares[1], shares[0]).sum(axis=0), 0.0)
    return divergence


def total_variation(first: Predictions, second: Predictions) -> Scores1D:
    """Return half the absolute difference of the predicted probabilities of every sample, in [0, 1]."""
    return array(mean_over_labels((first.probabilities - second.probabilities).abs().sum(dim=-1) / 2))


def jensen_shannon(first: Predictions, second: Predictions) -> Scores1D:
    """Return the Jensen–Shannon distance of the predicted probabilities of every sample, in [0, 1]."""
    from scipy.spatial.distance import jensenshannon

    with np.errstate(invalid="ignore"):  # rounding can give the root of a negative number for equal predictions
        found = jensenshannon(first.probabilities.numpy(), second.probabilities.numpy(), base=2, axis=-1)
    distances: Scores1D = np.nan_to_num(found)
    return distances if distances.ndim == 1 else distances.mean(axis=1)


def loss_distance(first: Predictions, second: Predictions) -> float:
    """Return W₂ between the loss distributions of the two models."""
    return float(squared_wasserstein(first.losses.double(), second.losses.double()).sqrt())


def weight_distance(first: nn.Module, second: nn.Module) -> float:
    """Return the Euclidean distance over all parameters. Raises `UsageError` if the architectures differ.

    >>> weight_distance(nn.Linear(2, 2), nn.Linear(3, 2))
    Traceback (most recent call last):
    unweave.errors.UsageError: The two models have different parameters, so their weights have no distance.
    """
    ours, theirs = dict(first.named_parameters()), dict(second.named_parameters())
    if {name: p.shape for name, p in ours.items()} != {name: p.shape for name, p in theirs.items()}:
        raise UsageError("The two models have different parameters, so their weights have no distance.")
    with torch.no_grad():
        squares: list[Tensor] = [
            (ours[name].cpu().double() - theirs[name].cpu().double()).square().sum() for name in ours
        ]
    return float(torch.stack(squares).sum().sqrt())


def reference_metrics(target: Observed, references: Sequence[Observed], *, seed: int = 0) -> list[Metric]:
    """Return every number that needs the predictions of retrained models."""
    found = [_tow(name, target, references, seed=seed) for name in ("tow", "tow_mia", "tow_split")]
    for part, subsets in target.parts.items():
        for subset in subsets:
            found += _distances(target, references, part, subset)
    return found


def klom_metrics(targets: Sequence[Observed], references: Sequence[Observed]) -> list[Metric]:
    """Return mean and 95th percentile of KLOM on every subset, with equally many models on both sides.

    With few models KLOM is biased upwards, and more so with fewer. So the reference must use as many models as the
    value. This takes twice as many retrained models; with fewer there is no reference.
    """
    found = []
    count = min(len(targets), len(references))
    for part, subsets in targets[0].parts.items():
        for subset, predictions in subsets.items():
            names = ("klom", "klom_95th_percentile")
            if count < 2:
                note = (
                    f"KLOM needs at least two unlearned and two retrained models (its authors use 100); "
                    f"{len(targets)} unlearned and {len(references)} retrained were given."
                )
            else:
                note = no_probabilities(predictions)
                note = note if len(predictions) else f"The {part} data has no {subset} samples."
            if note:
                found += [Metric.absent(n, better="lower", note=note, split=part, subset=subset) for n in names]
                continue
            ours, theirs = (
                np.stack([array(model(part, subset).margins) for model in models[:count]])
                for models in (targets, references)
            )
            divergence = klom(ours, theirs)
            spare = references[count : 2 * count]
            few = f"From {count} models on each side; with so few KLOM is biased upwards." if count < 50 else ""
            floor = None
            if len(spare) == count:
                floor = klom(np.stack([array(model(part, subset).margins) for model in spare]), theirs)
            else:
                few += f" No reference: {2 * count} retrained models would give one, {len(references)} were given."
            for name, estimate, reduce in (
                (names[0], mean(divergence), np.mean),
                (names[1], Estimate(float(np.percentile(divergence, 95))), lambda values: np.percentile(values, 95)),
            ):
                metric = Metric.of(name, estimate, better="lower", split=part, subset=subset, note=few.strip())
                found.append(metric.beside(reference=None if floor is None else float(reduce(floor)), before=None))
    return found


def weight_metrics(model: nn.Module, references: Sequence[nn.Module]) -> list[Metric]:
    """Return the distance of the model's weights to those of the references."""
    if not references:
        return [Metric.absent("weight_distance", better="lower", note=NO_REFERENCE)]
    try:
        value = _averaged([Estimate(weight_distance(model, other)) for other in references])
        pairs = [weight_distance(first, second) for first, second in combinations(references, 2)]
    except UsageError as error:
        return [Metric.absent("weight_distance", better="lower", note=str(error))]
    floor = float(np.mean(pairs)) if pairs else None
    return [Metric.of("weight_distance", value, better="lower").beside(reference=floor, before=None)]


NO_REFERENCE = "No retrained reference was given."


def _tow(name: str, target: Observed, references: Sequence[Observed], *, seed: int) -> Metric:
    factors = TOW_FACTORS["tow" if name == "tow_mia" else name]
    note = _tow_obstacle(target, references, factors)
    if name == "tow_mia" and not note:
        note = _attack_obstacle([target, *references], seed=seed)
    if note:
        return Metric.absent(name, better="higher", note=note)
    ours, *theirs = ([_right(model, *factor) for factor in factors] for model in (target, *references))
    if name == "tow_mia":
        for model, right in ((target, ours), *zip(references, theirs, strict=True)):
            scores = SupportVectorAttack.on(model, seed=seed).scores(model("train", "forget"))["confidence"]
            right[0] = (scores <= 0).astype(float)

    def compare(first: list[Scores1D], second: list[Scores1D]) -> Estimate:
        return tug_of_war([a - b for a, b in zip(first, second, strict=True)])

    value = _averaged([compare(ours, other) for other in theirs])
    return Metric.of(name, value, better="higher").beside(reference=_between(theirs, compare), before=None)


def _tow_obstacle(
    target: Observed, references: Sequence[Observed], factors: Sequence[tuple[str, tuple[str, ...]]]
) -> str:
    """Return why the tug of war cannot be computed, or an empty string."""
    if not references:
        return NO_REFERENCE
    if not target.has_test:
        return "No test data was given."
    for part, subsets in factors:
        if len(target(part, *subsets)) == 0:
            return f"The {part} data has no {' or '.join(subsets)} samples."
    return NOT_TOLD if target("train").recognised is None else ""


def _attack_obstacle(models: Sequence[Observed], *, seed: int) -> str:
    """Return why the attack of ToW-MIA cannot be run on these models, or an empty string."""
    if note := obstacle(models[0], "forget") or no_probabilities(models[0]("train", "forget")):
        return note
    return BLIND if any("confidence" in SupportVectorAttack.on(model, seed=seed).blind for model in models) else ""


def _right(model: Observed, part: str, subsets: tuple[str, ...]) -> Scores1D:
    return array(model(part, *subsets).correct)


def _distances(target: Observed, references: Sequence[Observed], part: str, subset: str) -> list[Metric]:
    measures: dict[str, Callable[[Predictions, Predictions], Estimate]] = {
        "prediction_total_variation": lambda first, second: mean(total_variation(first, second)),
        "prediction_jensen_shannon": lambda first, second: mean(jensen_shannon(first, second)),
        "loss_wasserstein": lambda first, second: Estimate(loss_distance(first, second)),
    }
    ours, theirs = target(part, subset), [reference(part, subset) for reference in references]
    found = []
    for name, measure in measures.items():
        note = NO_REFERENCE if not references else ""
        if not note and len(ours) == 0:
            note = f"The {part} data has no {subset} samples."
        if not note and name != "loss_wasserstein":
            note = no_probabilities(ours)
        if note:
            found.append(Metric.absent(name, better="lower", note=note, split=part, subset=subset))
            continue
        value = _averaged([measure(ours, other) for other in theirs])
        metric = Metric.of(name, value, better="lower", split=part, subset=subset)
        found.append(metric.beside(reference=_between(theirs, measure), before=None))
    return found


def _between(models: Sequence[T], measure: Callable[[T, T], Estimate]) -> float | None:
    """Return the mean of a measure over all pairs of retrained models, or None without pairs."""
    pairs = [measure(first, second).value for first, second in combinations(models, 2)]
    return float(np.mean(pairs)) if pairs else None


def _averaged(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over references. The interval spans all their intervals."""
    value = float(np.mean([estimate.value for estimate in estimates]))
    if len(estimates) == 1:
        return estimates[0]
    lows = [estimate.value if estimate.low is None else estimate.low for estimate in estimates]
    highs = [estimate.value if estimate.high is None else estimate.high for estimate in estimates]
    return Estimate(value, min(lows), max(highs))
