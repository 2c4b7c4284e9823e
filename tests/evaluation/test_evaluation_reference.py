"""Against a retrained reference, and the certificate: cases computed by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unweave import Compute, Split, UsageError, evaluate
from unweave.evaluation import Metric, Predictions, forgetting_bound, tug_of_war
from unweave.evaluation.distances import jensen_shannon, klom, total_variation, weight_distance
from unweave.evaluation.goals import as_if_never_trained, collapse, erase
from unweave.maths import squared_wasserstein


class Table(nn.Module):
    """A model that looks its logits up: its input is the row."""

    def __init__(self, logits):
        super().__init__()
        self.rows = nn.Parameter(torch.as_tensor(logits, dtype=torch.float32))

    def forward(self, inputs):
        return self.rows[inputs[:, 0].long()]


def says(*classes):
    return Table(torch.eye(2)[list(classes)] * 4)


DATA = (torch.arange(8.0)[:, None], torch.zeros(8, dtype=torch.long))
TRAIN = Split(DATA, forget=[0, 1], adjacent=[2, 3], remote=[4, 5, 6, 7])


def test_tow_by_hand():
    ours = says(1, 1, 0, 1, 0, 0, 0, 0)  # forget 0, adjacent ½, remote 1
    theirs = says(0, 1, 0, 0, 0, 0, 0, 0)  # forget ½, adjacent 1, remote 1
    scores = evaluate(ours, TRAIN, TRAIN, reference=theirs, compute=Compute("cpu"))
    # forget differs by ½; retained by 1/6; test as a whole by 2/8
    assert scores["model"]["tow"] == pytest.approx((1 - 1 / 2) * (1 - 1 / 6) * (1 - 2 / 8))
    # forget ½; adjacent ½, remote 0, on train and on test
    assert scores["model"]["tow_split"] == pytest.approx((1 - 1 / 2) * (1 - 1 / 2) ** 2)
    assert scores.metric("tow").reference is None
    assert scores.metric("accuracy", "train", "forget").reference == 0.5
    assert "needs 10 forget samples" in scores.metric("tow_mia").note


def test_the_floor_is_what_two_references_have_between_them():
    ours, first, second = says(1, 1, 0, 0, 0, 0, 0, 0), says(0, 1, 0, 0, 0, 0, 0, 0), says(0, 0, 0, 0, 0, 0, 0, 0)
    scores = evaluate(ours, TRAIN, TRAIN, reference=[first, second], compute=Compute("cpu"))
    assert scores.metric("tow").reference == pytest.approx((1 - 1 / 2) * (1 - 1 / 8))
    assert scores.metric("weight_distance").reference == pytest.approx(math.sqrt(32))
    assert scores.metric("weight_distance").value == pytest.approx((math.sqrt(32) + 8) / 2)
    assert scores.metric("prediction_total_variation", "train", "forget").reference > 0
    assert scores.metric("loss_wasserstein", "train", "remote").value == pytest.approx(0)


def test_a_model_is_at_no_distance_from_itself(digits):
    _, task, model = digits
    scores = evaluate(model, task.train, task.test, reference=model, original=model, compute=Compute("cpu"))
    for name in ("tow", "tow_mia", "tow_split"):
        assert scores["model"][name] == 1
    assert scores["model"]["weight_distance"] == 0
    assert scores["train"]["forget"]["prediction_total_variation"] == 0
    assert scores["train"]["forget"]["loss_wasserstein"] == 0
    assert scores.goals[1].value == pytest.approx(1)
    assert scores.goals[1].text == "1.000 of 1; nothing is missing."


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=9), min_size=1, max_size=4))
def test_tow_is_a_share_and_symmetric(differences):
    arrays = [np.array(values) for values in differences]
    found = tug_of_war(arrays)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found == tug_of_war([-values for values in arrays])


@pytest.mark.parametrize("gaps", [(0, 0, 0, 0, 0), (0.02, 0.02, 0.02, 0.02, 0.02), (0.3, 0, 0, 0, 0)])
def test_the_interval_of_tow_holds_the_truth(gaps):
    draw, covered = np.random.default_rng(0), 0
    sizes, truth = (500, 2000, 5000, 400, 2000), math.prod(1 - gap for gap in gaps)
    for _ in range(200):
        # Two models that differ about 40% of the samples, one of them better by the gap.
        found = tug_of_war(
            [
                draw.choice([1.0, -1.0, 0.0], n, p=[0.2 + gap / 2, 0.2 - gap / 2, 0.6])
                for n, gap in zip(sizes, gaps, strict=True)
            ]
        )
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
    assert covered >= 185  # 190 are 95%; the draws of a run may be a little less lucky


def test_klom_by_hand():
    same = np.array([[0.0, 1.0], [2.0, 1.0]])
    assert klom(same, same).tolist() == [0.0, 0.0]
    # margins 0, 20 against 0, 0: bins {first: ½, last: ½} and {first: 1}; the empty bin counts 10⁻⁵
    unlearned, retrained = np.array([[0.0], [20.0]]), np.array([[0.0], [0.0]])
    assert klom(unlearned, retrained)[0] == pytest.approx(math.log(1 / 0.5) + 1e-5 * math.log(1e-5 / 0.5), abs=1e-9)
    assert klom(retrained, unlearned)[0] == pytest.approx(0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-5), abs=1e-9)
    assert klom(np.full((3, 1), -500.0), np.full((3, 1), 500.0))[0] == pytest.approx(-math.log(1e-5), abs=2e-3)
    with pytest.raises(UsageError, match="equally many unlearned and retrained"):
        klom(np.zeros((2, 1)), np.zeros((3, 1)))


def test_klom_needs_several_models():
    ours, theirs = says(1, 1, 0, 0, 0, 0, 0, 0), says(0, 0, 0, 0, 0, 0, 0, 0)
    one = evaluate(ours, TRAIN, reference=theirs, compute=Compute("cpu")).metric("klom", "train", "forget")
    assert one.value is None
    assert "at least two unlearned and two retrained models" in one.note
    scores = evaluate(ours, TRAIN, reference=[theirs] * 4, others=[ours], compute=Compute("cpu"))
    assert scores["train"]["forget"]["klom"] == pytest.approx(-math.log(1e-5), abs=2e-3)
    assert scores["train"]["remote"]["klom"] == 0
    assert scores.metric("klom", "train", "forget").reference == 0


def test_klom_has_a_reference_only_of_as_many_models_as_its_value():
    draw, models = torch.Generator().manual_seed(0), []
    for _ in range(24):  # all drawn alike, so that nothing tells unlearned from retrained ones
        logits = torch.zeros(8, 2)
        logits[:, 0] = torch.randn(8, generator=draw)
        models.append(Table(logits))

    def found(retrained):
        asked = {"others": models[17:], "questions": ("reference",), "compute": Compute("cpu")}
        return evaluate(models[16], TRAIN, reference=models[:retrained], **asked).metric("klom", "train", "remote")

    few, enough = found(15), found(16)
    assert few.reference is None
    assert few.note.endswith("No reference: 16 retrained models would give one, 15 were given.")
    assert enough.value == few.value
    assert enough.reference == pytest.approx(enough.value, rel=0.2)
    assert "No reference" not in enough.note


def test_distances_of_predictions_by_hand():
    first = Predictions(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
    second = Predictions(torch.tensor([[0.6, 0.4]]).log(), torch.tensor([0]))
    assert total_variation(first, second) == pytest.approx([0.3])
    middle = [0.75, 0.25]
    half = [sum(p * math.log2(p / m) for p, m in zip(q, middle, strict=True)) for q in ([0.9, 0.1], [0.6, 0.4])]
    assert jensen_shannon(first, second) == pytest.approx([math.sqrt(sum(half) / 2)], rel=1e-5)


def test_models_that_agree_are_at_distance_0_without_a_warning():
    logits = torch.randn(1000, 20, generator=torch.Generator().manual_seed(0))
    same, shifted = (Predictions(logits + shift, torch.zeros(1000, dtype=torch.long)) for shift in (0.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jensen_shannon(same, shifted) == pytest.approx(np.zeros(1000), abs=1e-3)


def test_no_reference_no_test_other_architecture():
    scores = evaluate(says(*[0] * 8), TRAIN, compute=Compute("cpu"))
    assert scores.metric("tow").note == "No retrained reference was given."
    assert scores.metric("weight_distance").value is None
    assert scores.goals[1].value is None
    assert "without a retrained reference" in scores.goals[1].text
    assert scores.goals[0].value == 0
    wider = evaluate(says(*[0] * 8), TRAIN, reference=Table(torch.zeros(9, 2)), compute=Compute("cpu"))
    assert "different parameters" in wider.metric("weight_distance").note
    assert "No test data" in wider.metric("tow").note
    assert wider.metric("prediction_total_variation", "train", "forget").value is not None
    assert weight_distance(nn.Linear(2, 2), nn.Linear(2, 2)) > 0


# The certificate


@given(
    losses=st.lists(st.tuples(st.floats(1.2, 30), st.floats(0, 30)), min_size=1, max_size=40),
    alpha=st.floats(0.05, 1.0),
    sign=st.sampled_from([-1, 1]),
)
def test_the_bound_holds(losses, alpha, sign):
    before, now = (torch.tensor(column, dtype=torch.float64) for column in zip(*losses, strict=True))
    bound = forgetting_bound(before, now, alpha=alpha, classes=3, mean_sign=sign)
    could_be_right = float((now <= math.log(3)).double().mean())  # a right prediction has a loss of log 3 at most
    for value in (bound.value, bound.tighter):
        assert value is None or could_be_right <= value + 1e-9
    if bound.value is not None:
        assert bound.tighter <= bound.value + 1e-9


def test_the_bound_by_hand():
    before, now = torch.tensor([10.0, 12.0]), torch.tensor([11.0, 12.0])
    bound = forgetting_bound(before, now, alpha=0.5, classes=4, mean_sign=1)
    change = 0.5 * 0.5 + 0.5 * float(squared_wasserstein(now, before))
    assert bound.change == pytest.approx(change)
    assert bound.smallest_loss == 10
    room = 10 - math.log(4)
    assert bound.value == pytest.approx((1 + math.sqrt(change / 0.5)) ** 2 / room**2)
    assert bound.tighter == pytest.approx(0.5 / room**2)
    metric = bound.metrics()[0]
    assert metric.metric == "forget_bound"
    assert "not a privacy guarantee" in metric.note
    assert "upper bound" in metric.note


@pytest.mark.parametrize(
    ("before", "alpha", "classes", "words"),
    [
        ([0.5, 9.0], 0.5, 3, "must be above log"),
        ([9.0, 9.0], 0.0, 3, "plain PGD"),
        ([2.0, 9.0], 0.5, 3, "the formula gives"),
        ([9.0, 9.0], 0.5, 1, "has 1 class"),
        ([], 0.5, 3, "no forget samples"),
    ],
)
def test_no_bound_is_said_with_its_reason(before, alpha, classes, words):
    losses = torch.tensor(before)
    bound = forgetting_bound(losses, losses, alpha=alpha, classes=classes)
    assert bound.value is None
    assert words in str(bound)
    assert str(bound).startswith("no bound")
    assert words in bound.metrics()[0].note


def test_wrong_losses_are_refused():
    ok = torch.ones(3)
    for before, now, alpha in (
        (ok, torch.ones(2), 0.5),
        (ok, ok, 1.5),
        (torch.ones(3, 1), ok, 0.5),
        (ok * math.nan, ok, 0.5),
    ):
        with pytest.raises(UsageError):
            forgetting_bound(before, now, alpha=alpha, classes=3)


# The goals


def accuracy(split, subset, value, before=None, reference=None):
    return Metric(
        metric="accuracy", value=value, better="lower", split=split, subset=subset, before=before, reference=reference
    )


def test_goals_by_hand():
    metrics = [
        accuracy("train", "forget", 0.1, before=1.0, reference=0.4),
        accuracy("train", "adjacent", 0.9, before=0.95, reference=0.9),
        accuracy("train", "remote", 0.99, before=0.97, reference=0.99),  # a gain is no loss
    ]
    known = {metric.place: metric for metric in metrics}
    assert erase(known).value == pytest.approx(0.9 * 0.95)
    assert erase(known).worst == "10.0% of train forget samples are still recognised"
    assert as_if_never_trained(known).value == pytest.approx(0.7)
    assert "retrain 40.0%" in as_if_never_trained(known).worst
    assert collapse(metrics) == ""
    assert "fell from 95.0% to 20.0%" in collapse([accuracy("test", "remote", 0.2, before=0.95)])
    assert "below retrain's" in collapse([accuracy("test", "adjacent", 0.2, reference=0.95)])


def test_erasing_by_breaking_the_model_is_flagged():
    broken, original = says(*[1] * 8), says(*[0] * 8)
    scores = evaluate(broken, TRAIN, original=original, compute=Compute("cpu"))
    assert scores.goals[0].value == 0
    assert scores.collapse.startswith("COLLAPSE: train adjacent accuracy fell from 100.0% to 0.0%")
    assert "COLLAPSE" in str(scores)
    assert scores.to_dict()["collapse"] == scores.collapse
