"""Two-stage on models that nobody tuned for: no settings, the paper's projection, the constraint, exact resume."""

from __future__ import annotations

import copy

import pytest
import torch

import unweave as uw
from tests.helpers import texts
from tests.helpers.strangers import accuracy, blobs, mlp, normed, trained, wide_scale
from tests.helpers.tensors import same, weights
from unweave.engine import Workbench
from unweave.maths import gram_matrix

CPU = uw.Compute("cpu")
HOW = {"compute": CPU, "callbacks": [uw.Progress(show=False)]}


@pytest.fixture(scope="module")
def case():
    data, labels, groups = blobs()
    return trained(data, labels, mlp), uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)


@pytest.mark.parametrize(
    ("network", "how"),
    [(mlp, {}), (mlp, {"rate": 0.1, "sgd": True}), (normed, {}), (wide_scale, {}), (mlp, {"rate": 1e-3, "epochs": 5})],
)
def test_two_stage_forgets_a_class_without_settings(network, how):
    data, labels, groups = blobs()
    model = trained(data, labels, network, **how)
    split = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)
    result = uw.unlearn(model, split, "two-stage", **HOW)
    assert [row["phase"] for row in result.history][:: len(result.history) - 1] == ["stage 1", "stage 2"]
    assert accuracy(result.model, (data, labels), split.forget) <= 0.01
    for rows in (split.adjacent, split.remote):
        assert accuracy(result.model, (data, labels), rows) >= accuracy(model, (data, labels), rows) - 0.08


def test_the_release_forgets_nothing_there(case):
    """Its step sizes are those of one ResNet."""
    model, split = case
    with pytest.warns(uw.RunWarning, match="hardly forgotten"):
        result = uw.unlearn(model, split, "two-stage", profile="released", **HOW)
    assert accuracy(result.model, split.samples.dataset.data, split.forget) > 0.9


def test_a_step_of_stage_2_changes_neither_loss_to_first_order(case):
    model, split = case
    bench = Workbench(copy.deepcopy(model), split, device=torch.device("cpu"))
    stages = uw.TwoStage.configure(profile="default").phases()
    for stage in stages:
        stage.prepare(bench)
        stage.begin()
    seen = []
    span = stages[1]._span
    stages[1]._span = lambda number: (
        seen.append([[part.clone() for part in one] for one in span(number)]) or span(number)
    )
    for number in range(4):
        before = [parameter.detach().clone() for parameter in bench.parameters]
        stages[1].step(number)
        moved = [new.detach() - old for new, old in zip(bench.parameters, before, strict=True)]
        for gradient in seen[-1]:
            products = gram_matrix([moved, gradient])
            assert products[0, 1].abs() <= 1e-4 * (products[0, 0] * products[1, 1]).sqrt()
            assert products[0, 0] > 0


def test_a_round_after_which_forget_data_came_back_is_taken_back(case):
    """Stage 2 keeps the weights of the best place where the forget data was forgotten."""
    model, split = case
    result = uw.unlearn(model, split, "two-stage", profile="default", stage2_learning_rate=3.0, guard=None, **HOW)
    judged = [row for row in result.history if row["phase"] == "stage 2" and row.get("rate") is not None]
    assert judged[-1]["rate"] < 1, "no round was too long"
    assert accuracy(result.model, split.samples.dataset.data, split.forget) <= 0.005


def test_a_stopped_run_ends_with_the_same_weights(case, tmp_path):
    """Stopped amid and just before the end of both stages, and resumed each time."""
    model, split = case
    whole = uw.unlearn(model, split, "two-stage", guard=None, **HOW)
    steps = [row["phase"] for row in whole.history]
    stops = [steps.index(phase) + place for phase in ("stage 1", "stage 2") for place in (3, steps.count(phase) - 1)]
    done, out = 0, tmp_path / "run"
    for stop in stops:
        asked = []
        halt = uw.StopWhen(lambda asked=asked, more=stop - done: bool(asked.append(1)) or len(asked) == more)
        how = {"compute": CPU, "callbacks": [uw.Progress(show=False), halt], "guard": None}
        with pytest.raises(uw.Stopped):
            uw.unlearn(model, split, "two-stage", out=out, resume=done > 0, **how)
        done = stop
    again = uw.unlearn(model, split, "two-stage", out=out, resume=True, guard=None, **HOW)
    assert same(weights(again.model), weights(whole.model))
    assert again.history.rows == whole.history.rows


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
@pytest.mark.parametrize("rate", ["stage1_learning_rate", "stage2_learning_rate"])
def test_a_huge_step_size_is_cut_to_the_longest_step(case, rate):
    """Steps are shares of the weights, so nothing diverges."""
    model, split = case
    result = uw.unlearn(model, split, "two-stage", guard=None, **{rate: 1e30}, **HOW)
    assert all(weight.isfinite().all() for weight in weights(result.model))
    assert accuracy(result.model, split.samples.dataset.data, split.forget) <= 0.01


def test_a_second_request_forgets_and_what_was_forgotten_stays_so(case):
    model, first = case
    data, labels, groups = blobs()
    second = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=2)
    once = uw.unlearn(model, first, "two-stage", **HOW)
    twice = uw.unlearn(once.model, second.after(first), "two-stage", **HOW)
    assert twice.verdict.forgotten
    assert accuracy(twice.model, (data, labels), first.forget) <= 0.01
    for some in (twice.split.adjacent, twice.split.remote):
        assert accuracy(twice.model, (data, labels), some) >= 0.92


def squared(model, batch):
    return (model(batch[0]) - torch.nn.functional.one_hot(batch[1], 3)).square().sum(dim=1)


def is_right(model, batch):
    return model(batch[0]).argmax(dim=1) == batch[1]


@pytest.mark.parametrize("recognised", [is_right, None])
def test_a_loss_of_ones_own_without_settings(recognised):
    """A loss without a bound, on a model that was trained by it."""
    data, labels, groups = blobs()
    split = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)
    task = uw.OwnLoss(squared, recognised=recognised)
    fit = uw.Retrain(initial=mlp, epochs=60, learning_rate=1e-2, batch_size=64)
    everything = uw.Split((data, labels), [], range(1, 900, 2), range(0, 900, 2), allow_empty=True)
    model = uw.unlearn(mlp(), everything, fit, task=task, guard=None, **HOW).model
    result = uw.unlearn(model, split, "two-stage", task=task, **HOW)
    assert accuracy(result.model, (data, labels), split.forget) <= 0.01
    for some in (split.adjacent, split.remote):
        assert accuracy(result.model, (data, labels), some) >= 0.92


def test_a_handful_of_neighbours_judge_though_hardly_one_is_held_back():
    """With one answer held back, stage 2 could see no gain, and left the neighbours lost."""
    facts = uw.answers(texts.rows(), texts.tokenizer(), template=texts.TEMPLATE)
    everything = uw.Split(facts, [], range(12), range(12, 24), allow_empty=True)
    fit = uw.Retrain(initial=texts.llama, epochs=80, learning_rate=3e-3, batch_size=24)
    model = uw.unlearn(texts.llama(), everything, fit, guard=None, **HOW).model
    result = uw.unlearn(model, uw.Split(facts, [0, 2], range(4, 24, 2)), "two-stage", **HOW)
    assert result.verdict.forgotten
    assert result.scores["train"]["adjacent"]["accuracy"] >= 0.8
