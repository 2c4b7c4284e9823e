"""Membership attacks on scores and logits with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from unweave import Compute, Split, UsageError, evaluate
from unweave.evaluation import (
    Observed,
    Predictions,
    balanced_halves,
    confidences,
    left_out_ratios,
    log_likelihood_ratio,
    relative_scores,
    told_right,
)
from unweave.evaluation.attack import _auc, _hits_at, judge
from unweave.evaluation.distances import reference_metrics
from unweave.evaluation.membership import (
    BLIND,
    FEATURES,
    SupportVectorAttack,
    membership_metrics,
    modified_entropy,
    population_attack,
    svc_features,
)
from unweave.evaluation.rmia import expected_confidence, rmia_metrics, rmia_scores


def draw(seed, count, mean=0.0):
    return np.random.default_rng(seed).normal(mean, 1, count)


def inside(estimate, value):
    return estimate.low <= value <= estimate.high


def predictions(probabilities, labels):
    return Predictions(torch.tensor(probabilities, dtype=torch.float64).log(), torch.tensor(labels))


# Scores with known answers


def test_two_gaussians_give_the_closed_form():
    found = judge(draw(0, 4000, 1.0), draw(1, 4000), threshold=0.5, resamples=100)
    assert found["auc"].value == pytest.approx(norm.cdf(1 / math.sqrt(2)), abs=0.015)
    assert inside(found["auc"], norm.cdf(1 / math.sqrt(2)))
    assert found["balanced_accuracy"].value == pytest.approx(norm.cdf(0.5), abs=0.015)
    assert found["tpr_at_1_percent_fpr"].value == pytest.approx(norm.sf(norm.isf(0.01) - 1), abs=0.03)
    assert found["tpr_at_0_1_percent_fpr"].value == pytest.approx(norm.sf(norm.isf(0.001) - 1), abs=0.02)


def test_separable_scores_give_one():
    found = judge(np.arange(50.0) + 100, np.arange(30.0), threshold=60.0)
    assert all(estimate == (1.0, 1.0, 1.0) for estimate in found.values())


@pytest.mark.parametrize("seed", range(4))
def test_identical_distributions_give_chance_within_the_interval(seed):
    found = judge(draw(seed, 300), draw(seed + 50, 300), resamples=300, seed=seed)
    assert inside(found["auc"], 0.5)
    assert inside(found["balanced_accuracy"], 0.5)
    assert found["tpr_at_1_percent_fpr"].value < 0.08


def test_constant_scores_are_chance_not_an_error():
    found = judge(np.zeros(20), np.zeros(20))
    assert found["auc"].value == 0.5
    assert found["tpr_at_1_percent_fpr"].value == 0


def test_the_same_seed_gives_the_same_interval_and_leaves_the_global_generator_alone():
    np.random.seed(3)
    state = np.random.get_state()[1].copy()
    assert judge(draw(0, 40, 1), draw(1, 40), seed=5) == judge(draw(0, 40, 1), draw(1, 40), seed=5)
    assert (np.random.get_state()[1] == state).all()


some_scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30).map(np.array)


@settings(max_examples=60, deadline=None)
@given(members=some_scores, others=some_scores, rate=st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5]))
def test_what_the_bootstrap_resamples_is_what_sklearn_computes(members, others, rate):
    truth = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    scores = np.concatenate([members, others])
    assert _auc(members, others) == pytest.approx(roc_auc_score(truth, scores))
    false_alarms, hits, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert _hits_at(rate, members, others) == pytest.approx(hits[false_alarms <= rate].max())


# The support vector attack


def test_features_by_hand():
    found = svc_features(predictions([[0.7, 0.2, 0.1]], [1]))
    assert found["correctness"].tolist() == [[0.0]]
    assert found["confidence"].tolist() == [[pytest.approx(0.2)]]
    entropy = -(0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1))
    assert found["entropy"].tolist() == [[pytest.approx(entropy)]]
    modified = -0.8 * math.log(0.2) - 0.7 * math.log(0.3) - 0.1 * math.log(0.9)
    assert found["modified_entropy"].tolist() == [[pytest.approx(modified)]]
    assert found["probability"].tolist() == [pytest.approx([0.7, 0.2, 0.1])]
    assert tuple(found) == FEATURES


def widely_copied_modified_entropy(probabilities, labels):
    """All label columns at once, and log p in the place of log(1 − p)."""
    weights, logs = probabilities.clone(), probabilities.log()
    weights[:, labels] = (1 - probabilities)[:, labels]
    return -(weights * logs).sum(dim=1)


def test_modified_entropy_depends_on_the_sample_alone_unlike_the_widely_copied_version():
    some = predictions([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]], [0, 2, 1])
    together = modified_entropy(some)
    alone = torch.cat([modified_entropy(some[torch.tensor([row])]) for row in range(3)])
    assert torch.allclose(together, alone)
    legacy = widely_copied_modified_entropy(some.probabilities, some.labels)
    legacy_alone = torch.cat(
        [widely_copied_modified_entropy(some.probabilities[[row]], some.labels[[row]]) for row in range(3)]
    )
    assert not torch.allclose(legacy, legacy_alone)
    assert not torch.allclose(legacy_alone, together)


def test_a_certain_and_a_certainly_wrong_prediction_stay_finite():
    some = Predictions(torch.tensor([[90.0, -90.0], [-90.0, 90.0]]), torch.tensor([0, 0]))
    right, wrong = modified_entropy(some).tolist()
    assert right == pytest.approx(0, abs=1e-12)
    assert 100 < wrong < 1000
    assert some.margins.tolist() == [180.0, -180.0]


def blobs(counts, means, seed=0):
    """Predictions of two classes with given mean margins of the true class."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for (subset, count), mean in zip(counts.items(), means, strict=True):
        margin = mean + torch.randn(count, generator=generator)
        found[subset] = Predictions(
            torch.stack([margin, torch.zeros(count)], dim=1), torch.zeros(count, dtype=torch.long)
        )
    return found


def observed(train=(6, 6, 6), test=(0, 0, 0), counts=(60, 60, 120), test_counts=(60, 60, 120), seed=0):
    names = ("forget", "adjacent", "remote")
    return Observed(
        {
            "train": blobs(dict(zip(names, counts, strict=True)), train, seed),
            "test": blobs(dict(zip(names, test_counts, strict=True)), test, seed + 1),
        }
    )


def test_the_attack_finds_members_and_over_forgetting():
    remembered = {m.place: m for m in membership_metrics(observed())}
    assert remembered["train", "forget", "mia_svc_confidence"].value < 0.1
    assert remembered["test", "forget", "mia_svc_confidence"].value > 0.8
    assert remembered["train", "forget", "mia_svc_confidence_auc"].value > 0.95
    assert remembered["train", "forget", "mia_population_auc"].value > 0.95
    assert remembered["train", "adjacent", "mia_population_balanced_accuracy"].value > 0.9
    erased = {m.place: m for m in membership_metrics(observed(train=(-6, 6, 6)))}
    assert erased["train", "forget", "mia_svc_confidence"].value == 1  # saturated: that is why retrain's is the goal
    assert erased["train", "forget", "mia_population_auc"].value < 0.05
    assert erased["train", "forget", "mia_population_balanced_accuracy"].value > 0.9


def test_a_feature_that_is_the_same_for_all_says_nothing():
    """Where everything is predicted right, a tie must not pass for perfect forgetting."""
    found = {m.place: m for m in membership_metrics(observed(train=(12, 12, 12), test=(9, 9, 9)))}
    for place in (("train", "forget"), ("train", "adjacent"), ("test", "forget")):
        metric = found[*place, "mia_svc_correctness"]
        assert metric.value is None
        assert metric.note == BLIND
    assert found["train", "forget", "mia_svc_correctness_auc"].value is None
    assert found["train", "forget", "mia_population_auc"].value > 0.9


def test_the_order_of_samples_does_not_matter():
    first = observed()
    order = torch.randperm(60)
    shuffled = Observed({**first.parts, "train": {**first.parts["train"], "forget": first("train", "forget")[order]}})
    for one, other in zip(
        membership_metrics(first, resamples=0), membership_metrics(shuffled, resamples=0), strict=True
    ):
        if "balanced" not in one.metric:  # its splits are drawn by position
            assert one.value == pytest.approx(other.value), one.place


def test_population_attack_is_at_chance_on_identical_losses():
    some = observed(train=(1, 1, 1), test=(1, 1, 1), counts=(300, 300, 300), test_counts=(300, 300, 300))
    found = population_attack(some("train", "forget"), some("test", "forget"))
    assert inside(found["auc"], 0.5)
    assert found["balanced_accuracy"].value == pytest.approx(0.5, abs=0.06)
    assert found["balanced_accuracy"][1:] == (None, None)  # its splits overlap: their spread is no interval


@pytest.mark.parametrize("kind", ["forget", "adjacent", "remote"])
def test_the_support_vector_machine_learns_from_test_samples_of_every_kind(kind):
    """What is unlike training data in one kind of the test data alone is taken for test data."""
    names = ("forget", "adjacent", "remote")
    some = observed(test=[-6 if name == kind else 6 for name in names], counts=(60,) * 3, test_counts=(60,) * 3)
    scores = SupportVectorAttack(some).scores(some("test", kind))
    for feature in ("confidence", "modified_entropy", "probability"):
        assert (scores[feature] < 0).mean() > 0.9


def test_the_population_attack_does_not_side_with_the_many():
    """Losses of 6 ± 1 and 5 ± 1 are told apart at the best threshold, however many there are of each."""
    for members, others in ((500, 500), (300, 6000), (6000, 300)):
        some = observed(train=(-5, 0, 0), test=(-6, 0, 0), counts=(members, 9, 9), test_counts=(others, 9, 9))
        found = population_attack(some("train", "forget"), some("test", "forget"), resamples=0)
        assert found["balanced_accuracy"].value == pytest.approx(norm.cdf(0.5), abs=0.06)


def test_tow_mia_has_the_attack_in_the_place_of_forget_accuracy():
    target, reference = observed(train=(6, 6, 6)), observed(train=(3, 5, 6), seed=10)

    def factors(model):
        found = {metric.place: metric.value for metric in membership_metrics(model, resamples=0)}
        right = [model(*part).correct.double().mean() for part in (("train", "adjacent", "remote"), ("test",))]
        return found["train", "forget", "mia_svc_confidence"], *map(float, right)

    expected = math.prod(1 - abs(a - b) for a, b in zip(factors(target), factors(reference), strict=True))
    found = {metric.metric: metric.value for metric in reference_metrics(target, [reference])}
    assert found["tow_mia"] == pytest.approx(expected)
    assert found["tow_mia"] < found["tow"] - 0.1, "nearly all are recognised by both, and seen through in one"


# RMIA and U-LiRA


def test_rmia_by_hand():
    assert expected_confidence(np.array([[0.2], [0.4]]), offset=0.3) == pytest.approx([0.5 * (1.3 * 0.3 + 0.7)])
    assert relative_scores(np.array([0.5, 2.0]), np.array([1.0, 3.0])).tolist() == [0.0, 0.5]


def test_rmia_compares_with_remote_test_samples():
    """Its scores are the share of them that surprise less, counted one by one."""
    target, reference = (observed(test=(0, 2, -1), seed=seed) for seed in (0, 10))

    def surprises(*place):
        expected = [0.5 * (1.3 * p + 0.7) for p in confidences(reference(*place))]
        return [math.log(p / q) for p, q in zip(confidences(target(*place)), expected, strict=True)]

    population = surprises("test", "remote")
    for scores, part in zip(rmia_scores(target, [reference], "forget"), ("train", "test"), strict=True):
        slow = [sum(other < own for other in population) / len(population) for own in surprises(part, "forget")]
        assert scores == pytest.approx(slow)


@pytest.mark.parametrize("count", [1, 4])
def test_rmia_separates_members_from_what_references_explain(count):
    references = [observed(train=(0, 6, 6), seed=10 * (n + 1)) for n in range(count)]
    leaky = {m.place: m for m in rmia_metrics(observed(), references)}
    assert leaky["train", "forget", "mia_rmia_auc"].value > 0.85
    clean = {m.place: m for m in rmia_metrics(observed(train=(0, 6, 6), seed=99), references)}
    assert inside(clean["train", "forget", "mia_rmia_auc"], 0.5)
    assert leaky["train", "adjacent", "mia_rmia_auc"].value is None
    assert "shadow" in leaky["train", "adjacent", "mia_rmia_auc"].note
    assert (leaky["train", "forget", "mia_rmia_auc"].reference is None) == (count == 1)


def test_likelihood_ratio_by_hand_and_its_sign():
    shadows = np.array([[4.0, 1.0], [6.0, -1.0], [0.0, 1.0], [2.0, -1.0]])
    seen = np.array([[True, True], [True, True], [False, False], [False, False]])
    found = log_likelihood_ratio(np.array([5.0, 0.3]), shadows, seen)
    assert found == pytest.approx([8.0, 0.0])  # ((5−1)² − (5−5)²) / 2 with variance 1; no difference, no evidence


def test_ulira_finds_members_when_models_remember_and_is_at_chance_when_not():
    generator = np.random.default_rng(0)
    seen = balanced_halves(200, 16, seed=1)
    difficulty = generator.normal(0, 5, 200)  # samples differ more than membership does
    member = np.arange(200) < 100
    for effect, low, high in ((3.0, 0.9, 1.0), (0.0, 0.4, 0.6)):
        shadows = difficulty + effect * seen + generator.normal(0, 1, seen.shape)
        target = difficulty + effect * member + generator.normal(0, 1, 200)
        ratio = log_likelihood_ratio(target, shadows, seen)
        assert low <= judge(ratio[:100], ratio[100:], resamples=0)["auc"].value <= high


@given(samples=st.integers(2, 40), pairs=st.integers(2, 6), seed=st.integers(0, 99))
def test_halves_are_balanced_and_a_prefix_of_larger_designs(samples, pairs, seed):
    marks = balanced_halves(samples, 2 * pairs, seed=seed)
    assert (marks.sum(axis=0) == pairs).all()
    assert (balanced_halves(samples, 2 * pairs + 2, seed=seed)[: 2 * pairs] == marks).all()


def test_ulira_says_what_is_wrong():
    with pytest.raises(UsageError, match="even number, four"):
        balanced_halves(10, 5, seed=0)
    with pytest.raises(UsageError, match="Train more"):
        log_likelihood_ratio(np.zeros(1), np.zeros((3, 1)), np.array([[True], [False], [False]]))
    with pytest.raises(UsageError, match="do not match seen"):
        log_likelihood_ratio(np.zeros(2), np.zeros((3, 1)), np.zeros((3, 1), dtype=bool))


# Bad input: absent with a reason, the rest computed


def reason(scores, name, split="train", subset="forget"):
    metric = scores.metric(name, split, subset)
    assert metric.value is None
    return metric.note


def test_no_test_data(split, model):
    scores = evaluate(model, split, compute=Compute("cpu"))
    for name in ("mia_svc_confidence", "mia_svc_entropy_auc", "mia_population_auc", "mia_rmia_auc"):
        assert "No test data" in reason(scores, name)
    assert scores["train"]["forget"]["accuracy"] is not None
    assert "mia_svc_confidence" not in scores["train"]["forget"]


def test_too_few_samples_for_an_attack(data, split, model):
    test = Split(data, forget=[0, 1], adjacent=range(8, 20), remote=range(20, 60))
    few = evaluate(
        model, Split(data, forget=[0, 1], adjacent=range(8, 20), remote=range(20, 60)), test, compute=Compute("cpu")
    )
    assert "needs 10 forget samples, but the training data has 2" in reason(few, "mia_population_auc")
    assert few.metric("mia_population_auc", "train", "adjacent").value is not None
    wide = Split(data, forget=range(12), adjacent=range(12, 20), remote=range(20, 60))
    replaced = evaluate(model, wide, test, compute=Compute("cpu")).metric("mia_population_auc", "train", "forget")
    assert replaced.value is not None
    assert "14 test samples of the same label" in replaced.note


def test_a_single_class(data):
    inputs = data[0]
    one = torch.nn.Linear(5, 1)
    same = (inputs, torch.zeros(60, dtype=torch.long))
    split = Split(same, forget=range(12), adjacent=range(12, 30), remote=range(30, 60))
    scores = evaluate(one, split, split, reference=one, compute=Compute("cpu"), task="classification")
    assert "single class" in reason(scores, "mia_svc_confidence")
    assert scores["train"]["forget"]["accuracy"] == 1
    assert scores.metric("tow").value == 1


def test_one_label_is_no_obstacle(data, model):
    same = (data[0], torch.zeros(60, dtype=torch.long))
    split = Split(same, forget=range(12), adjacent=range(12, 30), remote=range(30, 60))
    scores = evaluate(model, split, split, compute=Compute("cpu"))
    assert 0 <= scores["train"]["forget"]["mia_svc_confidence"] <= 1


def test_test_data_without_forget_samples(data, model):
    train = Split(data, forget=range(12), adjacent=range(12, 20), remote=range(20, 60))
    test = Split(data, forget=[], adjacent=range(20), remote=range(20, 60), allow_empty=True)
    scores = evaluate(model, train, test, compute=Compute("cpu"))
    assert "no forget samples" in reason(scores, "mia_svc_confidence", "test")
    assert scores["train"]["forget"]["mia_svc_confidence"] is not None


def test_with_few_shadow_models_all_samples_share_a_variance():
    generator = np.random.default_rng(5)
    seen = balanced_halves(3, 16, seed=1)
    shadows = generator.normal(np.where(seen, 2.0, 0.0), [0.5, 1.0, 3.0])
    target, expected = np.array([1.5, -0.5, 2.5]), np.zeros(3)
    for side, sign in ((seen, 1), (~seen, -1)):
        own = [shadows[side[:, i], i] for i in range(3)]
        shared = math.sqrt(sum(margins.var() for margins in own) / 3)
        expected += [sign * norm.logpdf(target[i], own[i].mean(), shared) for i in range(3)]
    assert np.allclose(log_likelihood_ratio(target, shadows, seen), expected)


def test_with_enough_shadow_models_every_sample_has_its_own_variance():
    generator = np.random.default_rng(5)
    seen = balanced_halves(3, 80, seed=1)
    spread = np.array([0.5, 1.0, 3.0])
    shadows = generator.normal(np.where(seen, 2.0, 0.0), spread)
    target = np.array([1.5, -0.5, 2.5])
    expected = [
        norm.logpdf(target[i], shadows[seen[:, i], i].mean(), shadows[seen[:, i], i].std())
        - norm.logpdf(target[i], shadows[~seen[:, i], i].mean(), shadows[~seen[:, i], i].std())
        for i in range(3)
    ]
    assert np.allclose(log_likelihood_ratio(target, shadows, seen), expected)


def test_what_cannot_be_told_apart_is_at_chance():
    """A machine that is judged on what it learned from finds members in noise: an AUC of 0.55 of these."""
    generator = torch.Generator().manual_seed(0)

    def noise(count):
        return Predictions(3 * torch.randn(count, 10, generator=generator), torch.arange(count) % 10)

    parts = {part: {"forget": noise(400), "adjacent": noise(1000), "remote": noise(10)} for part in ("train", "test")}
    found = {m.place: m.value for m in membership_metrics(Observed(parts), resamples=0)}
    for feature in ("modified_entropy", "entropy", "probability"):
        assert found["train", "adjacent", f"mia_svc_{feature}_auc"] == pytest.approx(0.5, abs=0.03)


def test_tow_mia_is_absent_where_the_attack_is_blind():
    same = observed(train=(12, 12, 12), test=(12, 12, 12), seed=3)
    parts = {
        part: {s: Predictions(p.logits.sign() * 20, p.labels) for s, p in same.parts[part].items()}
        for part in same.parts
    }
    blind = Observed(parts)
    found = {m.metric: m for m in reference_metrics(blind, [blind], seed=0)}
    assert found["tow"].value == 1
    assert (found["tow_mia"].value, found["tow_mia"].note) == (None, BLIND)


# U-LiRA over many models


def test_each_model_is_attacked_with_all_others_and_never_with_itself():
    margins = np.concatenate([draw(seed, 3, 4.0)[None] for seed in range(6)] + [draw(9 + n, 3)[None] for n in range(6)])
    seen = np.repeat([[True], [False]], 6, axis=0).repeat(3, axis=1)
    found = left_out_ratios(margins, seen)
    others = np.arange(12) != 7
    assert found[7] == pytest.approx(log_likelihood_ratio(margins[7], margins[others], seen[others]))
    share, low, high = told_right(found, seen)
    assert ((low <= share) & (share <= high)).all()
    for sample in range(3):
        right = int(((found > 0) == seen)[:, sample].sum())
        exact = binomtest(right, 12).proportion_ci(0.95, method="exact")
        assert (low[sample], high[sample]) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_an_attack_that_is_always_or_never_right_has_an_interval_that_ends_there():
    seen = np.array([[True, True], [False, False]] * 4)
    share, low, high = told_right(np.where(seen, 1.0, -1.0) * [1, -1], seen)
    assert share.tolist() == [1, 0]
    assert (high[0], low[1]) == (1, 0)
    assert low[0] == pytest.approx(1 - high[1]) == pytest.approx(0.025 ** (1 / 8))
