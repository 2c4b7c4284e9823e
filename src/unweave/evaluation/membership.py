"""Membership attacks that need nothing but the model's own logits.

**SVC** (Jia et al., "Model sparsity can simplify machine unlearning", 2023). A support vector machine learns to tell
retained training samples from test samples by one feature of the model's output, then says how many forget samples
look like test samples: ``mia_svc_confidence`` and four more, one a feature. As published the target is the forget
*training* data (split ``train``); the entanglement paper's code takes the forget *test* data (split ``test``), and both
are reported. The number reaches 1 whenever confidence on the forget data is low, so it rewards over-forgetting: the
desirable value is that of a retrained model, not 1. How well members are told from others (AUC and the rates) is judged
on samples that the machine did not learn from: a second one learns from every other sample.

**Population** (as in SCRUB). Forget training samples are told from test samples of the same kind by their loss alone:
the balanced accuracy is a logistic regression's, on held-out halves of stratified shuffle splits; the other numbers
rank samples by their loss, which is all that such a regression can do. An AUC below 0.5 means that forget samples are
*less* familiar than samples the model never saw, which gives them away too.
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
SHADOW = 1000  # samples on each side that the support vector machine learns from, as in the paper's code
SPLITS = 10
BLIND = "Retained and test samples are alike by this feature, so the attack cannot tell them apart."


def modified_entropy(predictions: Predictions) -> Tensor:
    """Return −(1 − p_y) log p_y − Σ_{k≠y} p_k log(1 − p_k) of every sample (Song and Mittal, 2021).

    A widely copied implementation takes the columns of all labels that occur in the batch instead of each sample's
    own, and log p where log(1 − p) is meant, so that the feature depends on which other samples are there.

    >>> some = Predictions(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0]))
    >>> modified_entropy(some)  # −0.2 log 0.8 − 0.2 log 0.8
    tensor([0.0893], dtype=torch.float64)
    """
    logs, probabilities, place = predictions.log_probabilities, predictions.probabilities, predictions.labels[..., None]
    # log(1 − p) from p in double precision; where p rounds to 1 the smallest positive number stands in.
    log_rest = torch.log1p(-probabilities.clamp(max=1 - torch.finfo(torch.float64).eps))
    of_label = -(1 - probabilities.gather(-1, place)[..., 0]) * logs.gather(-1, place)[..., 0]
    return mean_over_labels(of_label - (probabilities * log_rest).masked_fill(predictions.own, 0).sum(dim=-1))


def svc_features(predictions: Predictions) -> dict[str, Scores1D]:
    """Return the five features of the attack, a matrix (samples × numbers) each.

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
    """The attack, ready to judge any sample of the model: one machine for each feature."""

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
        # What is the same for members and others, such as correctness where all is correct, decides nothing.
        self.blind = {name for name in FEATURES if np.ptp(self._decide(name, both[name])) == 0}

    @classmethod
    def on(cls, observed: Observed, *, seed: int = 0) -> SupportVectorAttack:
        """Return the attack on a model; it is made once."""
        return observed.once(("support vector attack", seed), lambda: cls(observed, seed=seed))

    def scores(self, predictions: Predictions) -> dict[str, Scores1D]:
        """Return each feature's decision for every sample: above 0 it calls the sample a member."""
        found = _rounded(predictions)
        return {name: self._decide(name, found[name]) for name in FEATURES}

    def _decide(self, name: str, values: Scores1D) -> Scores1D:
        decisions: Scores1D = self.machines[name].decision_function(values).round(6)
        return decisions


def _rounded(predictions: Predictions) -> dict[str, Scores1D]:
    """The features to four places: far finer than the kernel's width of 1, far coarser than the noise of float32.

    Otherwise the solver stops elsewhere with every batch size, and ranks samples that the model is sure of by noise.
    """
    return {name: values.round(4) for name, values in svc_features(predictions).items()}


def population_attack(
    members: Predictions, others: Predictions, *, resamples: int = 200, seed: int = 0
) -> dict[str, Estimate]:
    """Return the numbers of the attack; the interval of its balanced accuracy spans the splits."""
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
    low, high = np.percentile(held_out, [2.5, 97.5])
    return numbers | {"balanced_accuracy": Estimate(float(held_out.mean()), float(low), float(high))}


def _log_confidences(predictions: Predictions) -> Scores1D:
    """Minus the loss, in double precision: single precision ties samples that the model is sure of."""
    if not predictions.has_probabilities:
        return -array(predictions.losses)
    return array(predictions.of_labels(predictions.log_probabilities))


def comparable(observed: Observed, subset: str) -> tuple[Predictions, str]:
    """Return test samples to compare a subset of the training data with, and a note on them if one is due.

    The same subset of the test data; where it is too small, all test data of the same labels.
    """
    unseen = observed("test", subset)
    if len(unseen) >= FEWEST:
        return unseen, ""
    every = observed("test")
    groups = as_groups(torch.cat([every.labels, observed("train", subset).labels]))
    same = every[torch.isin(groups[: len(every)], groups[len(every) :])]
    return same, f"Compared with {len(same)} test samples of the same label: the test data has {len(unseen)} {subset}."


def obstacle(observed: Observed, subset: str) -> str:
    """Say why a membership attack on a subset cannot be made; empty if it can."""
    if not observed.has_test:
        return "No test data was given, and an attack needs samples that were never trained on."
    members = observed("train", subset)
    if len(members) < FEWEST:
        return f"The attack needs {FEWEST} {subset} samples; the training data has {len(members)}."
    if members.has_probabilities and members.classes < 2:
        return "The model has a single class, so its output says nothing."
    others = comparable(observed, subset)[0]
    if len(others) < FEWEST:
        return f"The attack needs {FEWEST} test samples of the same label as {subset}; there are {len(others)}."
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
    """Say why an attack that needs probabilities cannot be made; empty if it can."""
    if predictions.has_probabilities:
        return ""
    return f"The task {predictions.task.name} has no class probabilities."


def _svc(machine: SupportVectorAttack, members: Predictions, subset: str) -> list[Metric]:
    """How many look like test samples."""
    return [
        Metric.absent(f"mia_svc_{feature}", better="reference", note=BLIND, split="train", subset=subset)
        if feature in machine.blind
        else Metric.of(f"mia_svc_{feature}", _efficacy(scores), better="reference", split="train", subset=subset)
        for feature, scores in machine.scores(members).items()
    ]


def _svc_told_apart(observed: Observed, subset: str, *, resamples: int, seed: int) -> list[Metric]:
    """How well they are told from test samples, of those that the machine did not learn from."""
    half = observed.once("other half", lambda: observed.every_other(1))
    # No machine learns from forget samples, so that all of them can be judged.
    members = observed("train", subset) if subset == "forget" else half("train", subset)
    others, note = comparable(half, subset)
    if min(len(members), len(others)) < FEWEST:
        note = f"There are {len(members)} members and {len(others)} others that the machine would not learn from."
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
    """The authors' number: the same attack on test samples, which no model was trained on."""
    if len(target) == 0:
        return [_no_test_target(feature, "The test data has no forget samples.") for feature in FEATURES]
    return [
        _no_test_target(feature, BLIND)
        if feature in machine.blind
        else Metric.of(f"mia_svc_{feature}", _efficacy(scores), better="reference", split="test", subset="forget")
        for feature, scores in machine.scores(target).items()
    ]


def _efficacy(scores: Scores1D) -> Estimate:
    """The share of samples that the attack takes for test samples."""
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
