"""Membership attacks that need only the logits of the model.

**SVC** (Jia et al., "Model sparsity can simplify machine unlearning", 2023). A support vector machine learns to tell
retained training samples from test samples by one feature of the model's output. The number is the share of forget
samples that look like test samples: ``mia_svc_confidence`` and four more, one per feature. The published target is the
forget *training* data (split ``train``). The entanglement paper's code takes the forget *test* data (split ``test``).
Both are reported. The number reaches 1 whenever confidence on the forget data is low, so it rewards over-forgetting:
the best value is that of a retrained model, not 1. AUC and the rates use samples that the machine was not trained on:
a second machine is trained on every other sample.

**Population** (as in SCRUB). The attack tells forget training samples from similar test samples by their loss alone.
The balanced accuracy is that of a logistic regression on held-out halves of stratified shuffle splits. The other
numbers rank samples by their loss, as such a regression does too. An AUC below 0.5 means that forget samples are *less*
familiar than samples the model never saw, which identifies them too.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unweave.data import as_groups
from unweave.evaluation import attack
from unweave.evaluation.attack import FEWEST, Scores1D
from unweave.evaluation.metric import Estimate, Metric, share
from unweave.evaluation.predictions import Observed, Predictions, array, mean_over_labels, some_of

FEATURES = ("correctness", "confidence", "entropy", "modified_entropy", "probability")
TARGETS = ("forget", "adjacent")  # adjacent: collateral leakage
SHADOW = 1000  # training samples of the support vector machine per side, as in the paper's code
SPLITS = 10
BLIND = "This feature is the same for retained and test samples, so the attack cannot tell them apart."


def modified_entropy(predictions: Predictions) -> Tensor:
    """Return −(1 − p_y) log p_y − Σ_{k≠y} p_k log(1 − p_k) of every sample (Song and Mittal, 2021).

    A widely copied implementation has two errors: it uses the columns of all labels in the batch instead of the
    sample's own label, and log p instead of log(1 − p). Its feature depends on the other samples in the batch.

    >>> some = Predictions(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0]))
    >>> modified_entropy(some)  # −0.2 log 0.8 − 0.2 log 0.8
    tensor([0.0893], dtype=torch.float64)
    """
    logs, probabilities, place = predictions.log_probabilities, predictions.probabilities, predictions.labels[..., None]
    # log(1 − p) from p in double precision. If p rounds to 1, 1 − eps is used.
    log_rest = torch.log1p(-probabilities.clamp(max=1 - torch.finfo(torch.float64).eps))
    of_label = -(1 - probabilities.gather(-1, place)[..., 0]) * logs.gather(-1, place)[..., 0]
    return mean_over_labels(of_label - (probabilities * log_rest).masked_fill(predictions.own, 0).sum(dim=-1))


def svc_features(predictions: Predictions) -> dict[str, Scores1D]:
    """Return the five features of the attack, each as a matrix (samples × numbers).

    >>> some = Predictions(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([1]))
    >>> {name: values.round(3).tolist() for name, values in svc_features(some).items()}["confidence"]
    [[0.25]]
    """
    probabilities = predictions.probabilities
    columns = {
        "correctness": predictions.correct,
        "confidence": predictions.of_labels(probabilities),
        "entropy": mean_over_labels(-torch.xlogy(probabilities, probabilities).sum(dim=-1)),
        "modified_entropy": modified_entropy(predictions),
    }
    found = {name: array(column)[:, None] for name, column in columns.items()}
    return {**found, "probability": array(probabilities.flatten(1))}


class SupportVectorAttack:
    """The trained attack on a model, for any sample: one machine per feature."""

    def __init__(self, observed: Observed, *, seed: int = 0) -> None:
        from sklearn.svm import SVC

        generator = np.random.default_rng(seed)
        retained, unseen = observed("train", "adjacent", "remote"), observed("test")
        count = min(len(retained), len(unseen), SHADOW)
        members, others = (_rounded(some_of(side, count, generator)) for side in (retained, unseen))
        truth = np.concatenate([np.ones(count), np.zeros(count)])
        both = {name: np.concatenate([members[name], others[name]]) for name in FEATURES}
        self.machines = {
            name: SVC(C=3, kernel="rbf", gamma="auto", random_state=0).fit(both[name], truth) for name in FEATURES
        }
        # A feature with one value for members and others, such as correctness if all are correct, is blind.
        self.blind = {name for name in FEATURES if np.ptp(self._decide(name, both[name])) == 0}

    @classmethod
    def on(cls, observed: Observed, *, seed: int = 0) -> SupportVectorAttack:
        """Return the attack on a model. It is trained once and cached."""
        return observed.once(("support vector attack", seed), lambda: cls(observed, seed=seed))

    def scores(self, predictions: Predictions) -> dict[str, Scores1D]:
        """Return each feature's decision for every sample. Above 0 the attack calls the sample a member."""
        found = _rounded(predictions)
        return {name: self._decide(name, found[name]) for name in FEATURES}

    def _decide(self, name: str, values: Scores1D) -> Scores1D:
        decisions: Scores1D = self.machines[name].decision_function(values).round(6)
        return decisions


def _rounded(predictions: Predictions) -> dict[str, Scores1D]:
    """The features to four places: much finer than the kernel's width of 1, much coarser than float32 noise.

    Unrounded, the solver's result would depend on the batch size, and noise would rank samples with high confidence.
    """
    return {name: values.round(4) for name, values in svc_features(predictions).items()}


def population_attack(
    members: Predictions, others: Predictions, *, resamples: int = 200, seed: int = 0
) -> dict[str, Estimate]:
    """Return the numbers of the attack.

    Its balanced accuracy has no interval: the shuffle splits overlap, so their spread is not that of other samples.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    familiar = [_log_confidences(side) for side in (members, others)]
    losses = -np.concatenate(familiar)[:, None]
    truth = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    held_out = cross_val_score(
        make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")),
        losses,
        truth,
        cv=StratifiedShuffleSplit(SPLITS, test_size=0.5, random_state=seed),
        scoring="balanced_accuracy",
    )
    numbers = attack.judge(*familiar, resamples=resamples, seed=seed)
    return numbers | {"balanced_accuracy": Estimate(float(held_out.mean()))}


def _log_confidences(predictions: Predictions) -> Scores1D:
    """Minus the loss, in double precision: in single precision, samples with high confidence would tie."""
    if not predictions.has_probabilities:
        return -array(predictions.losses)
    return array(predictions.of_labels(predictions.log_probabilities))


def comparable(observed: Observed, subset: str) -> tuple[Predictions, str]:
    """Return test samples to compare a training subset with, and a note if they are not the same subset.

    These are the same subset of the test data or, if it is too small, all test data with the same labels.
    """
    unseen = observed("test", subset)
    if len(unseen) >= FEWEST:
        return unseen, ""
    every = observed("test")
    groups = as_groups(torch.cat([every.labels, observed("train", subset).labels]))
    same = every[torch.isin(groups[: len(every)], groups[len(every) :])]
    return same, f"Compared with {len(same)} test samples of the same label: the test data has {len(unseen)} {subset}."


def obstacle(observed: Observed, subset: str) -> str:
    """Return why a membership attack on a subset cannot be run, or an empty string."""
    if not observed.has_test:
        return "No test data was given. The attack needs samples outside the training data."
    members = observed("train", subset)
    if len(members) < FEWEST:
        return f"The attack needs {FEWEST} {subset} samples, but the training data has {len(members)}."
    if members.has_probabilities and members.classes < 2:
        return "The model has a single class, so its output carries no information."
    others = comparable(observed, subset)[0]
    if len(others) < FEWEST:
        return f"The attack needs {FEWEST} test samples of the same label as {subset}, but there are {len(others)}."
    if subset == "forget" and len(observed("train", "adjacent", "remote")) < FEWEST:
        return f"The attack needs {FEWEST} retained samples."
    return ""


def membership_metrics(observed: Observed, *, resamples: int = 200, seed: int = 0) -> list[Metric]:
    """Attack the forget set and, for collateral leakage, the adjacent set."""
    found: list[Metric] = []
    for subset in TARGETS:
        if note := obstacle(observed, subset):
            found += _absent(subset, note)
            continue
        members, (others, note) = observed("train", subset), comparable(observed, subset)
        found += _svc_metrics(observed, subset, resamples=resamples, seed=seed)
        numbers = population_attack(members, others, resamples=resamples, seed=seed)
        found += attack.as_metrics(
            "mia_population", numbers, split="train", subset=subset, others=len(others), note=note
        )
    return found


def _svc_metrics(observed: Observed, subset: str, *, resamples: int, seed: int) -> list[Metric]:
    """Return every number of the support vector attack on a subset."""
    members = observed("train", subset)
    if note := no_probabilities(members):
        return _absent_features(subset, note)
    machine = SupportVectorAttack.on(observed, seed=seed)
    found = _svc(machine, members, subset) + _svc_told_apart(observed, subset, resamples=resamples, seed=seed)
    return found + (_svc_on_test(machine, observed("test", "forget")) if subset == "forget" else [])


def no_probabilities(predictions: Predictions) -> str:
    """Return why an attack that needs probabilities cannot be run, or an empty string."""
    if predictions.has_probabilities:
        return ""
    return f"The task {predictions.task.name} has no class probabilities."


def _svc(machine: SupportVectorAttack, members: Predictions, subset: str) -> list[Metric]:
    """The share of a subset that looks like test samples, for every feature."""
    return [
        Metric.absent(f"mia_svc_{feature}", better="reference", note=BLIND, split="train", subset=subset)
        if feature in machine.blind
        else Metric.of(f"mia_svc_{feature}", _efficacy(scores), better="reference", split="train", subset=subset)
        for feature, scores in machine.scores(members).items()
    ]


def _svc_told_apart(observed: Observed, subset: str, *, resamples: int, seed: int) -> list[Metric]:
    """How well the attack tells a subset from test samples, on samples that the machine was not trained on."""
    half = observed.once("other half", lambda: observed.every_other(1))
    # No machine is trained on forget samples, so all of them can be judged.
    members = observed("train", subset) if subset == "forget" else half("train", subset)
    others, note = comparable(half, subset)
    if min(len(members), len(others)) < FEWEST:
        note = f"Only {len(members)} members and {len(others)} others remain outside the attack's own training data."
        return [row for f in FEATURES for row in attack.absent(f"mia_svc_{f}", split="train", subset=subset, note=note)]
    machine = SupportVectorAttack.on(observed.once("half", lambda: observed.every_other(0)), seed=seed)
    found, (on_members, on_others) = [], map(machine.scores, (members, others))
    for feature in FEATURES:
        if feature in machine.blind:
            found += attack.absent(f"mia_svc_{feature}", split="train", subset=subset, note=BLIND)
            continue
        numbers = attack.judge(on_members[feature], on_others[feature], resamples=resamples, seed=seed)
        found += attack.as_metrics(
            f"mia_svc_{feature}", numbers, split="train", subset=subset, others=len(others), note=note
        )
    return found


def _svc_on_test(machine: SupportVectorAttack, target: Predictions) -> list[Metric]:
    """The number of the entanglement paper's code: the same attack on forget test samples."""
    if len(target) == 0:
        return [_no_test_target(feature, "The test data has no forget samples.") for feature in FEATURES]
    return [
        _no_test_target(feature, BLIND)
        if feature in machine.blind
        else Metric.of(f"mia_svc_{feature}", _efficacy(scores), better="reference", split="test", subset="forget")
        for feature, scores in machine.scores(target).items()
    ]


def _efficacy(scores: Scores1D) -> Estimate:
    """The share of samples that the attack classifies as test samples."""
    return share(int((scores <= 0).sum()), len(scores))


def _absent(subset: str, note: str) -> list[Metric]:
    return attack.absent("mia_population", split="train", subset=subset, note=note) + _absent_features(subset, note)


def _absent_features(subset: str, note: str) -> list[Metric]:
    found: list[Metric] = []
    for feature in FEATURES:
        found += _absent_svc(feature, subset, note)
        if subset == "forget":
            found.append(_no_test_target(feature, note))
    return found


def _absent_svc(feature: str, subset: str, note: str) -> list[Metric]:
    name = f"mia_svc_{feature}"
    found = [Metric.absent(name, better="reference", note=note, split="train", subset=subset)]
    return found + attack.absent(name, split="train", subset=subset, note=note)


def _no_test_target(feature: str, note: str) -> Metric:
    return Metric.absent(f"mia_svc_{feature}", better="reference", note=note, split="test", subset="forget")
