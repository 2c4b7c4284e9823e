"""Our own method: the constraint holds, is restored, and bounds the accuracy."""

import copy
import math

import pytest
import torch
from torch import nn

from unweave import Compute, OwnLoss, Split, UsageError, unlearn
from unweave.engine import Workbench, run_phases
from unweave.evaluation import shortfall_bound
from unweave.maths import gram_matrix, squared_wasserstein
from unweave.methods.unweave import Constrained, Unweave

CPU = torch.device("cpu")


def settings(**values):
    few = {"learning_rate": 1e-2, "epochs": 20, "batch_size": 12, "remote_batch": 40, "least_steps": 0}
    return Unweave(**(few | values))


def begun(model, split, chosen):
    phase = Constrained(chosen)
    phase.prepare(Workbench(model, split, device=CPU))
    phase.begin()
    return phase


def shortfall(model, split, target):
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    probabilities = model(inputs).softmax(1).gather(1, labels[:, None]).squeeze(1)
    odds = ((1 - probabilities) / probabilities).log()
    return (target - odds).clamp(min=0).square().mean(), (model(inputs).argmax(1) == labels).double().mean()


def test_the_shortfall_is_the_squared_distance_to_the_nearest_distribution_above_the_target():
    losses = 8 * torch.rand(12, dtype=torch.float64)
    found = (5 - losses).clamp(min=0).square().mean()
    torch.testing.assert_close(found, squared_wasserstein(losses, losses.clamp(min=5)))
    for _ in range(50):
        above = 5 + 3 * torch.rand(12, dtype=torch.float64)
        assert found <= squared_wasserstein(losses, above) + 1e-12


def test_shortfall_and_gradient_are_those_of_the_whole_forget_set(problem):
    model, split = problem
    phase = begun(model, split, settings(forget_batch=3, target=6.0))
    phase.logged = {}
    value, gradient = phase._distance()
    expected, _ = shortfall(model, split, 6.0)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, list(torch.autograd.grad(expected, list(model.parameters()))))


@pytest.mark.parametrize("lacking", [8, 5, 0])
def test_only_samples_that_lack_something_are_differentiated(problem, lacking):
    """This is done where the forget set takes several batches. The step is the same."""
    model, split = problem
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none").detach()
    odds = torch.tensor([-9.0, *losses.expm1().log().sort().values, 9.0])
    aim = odds[lacking : lacking + 2].mean()  # this many samples are below it
    whole, pieces = (begun(model, split, settings(forget_batch=size, target=2.0)) for size in (8, 3))
    for phase in (whole, pieces):
        phase.aims.fill_(aim)
        phase.logged = {}
    assert (whole.looks_first, pieces.looks_first) == (False, True)
    (expected, gradient), (value, same) = whole._distance(), pieces._distance()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(same, gradient)
    torch.testing.assert_close(pieces.logged, whole.logged)
    assert [phase.bench.cost.sample_gradients for phase in (whole, pieces)] == [8, lacking]


def test_samples_that_change_from_look_to_look_are_all_differentiated(problem):
    model, split = problem
    split.samples.keep_data = "host"
    assert not begun(model, split, settings(forget_batch=3)).looks_first
    split.samples.keep_data = "device"
    assert not begun(model, split, settings(forget_batch=3, normalisation="train")).looks_first


def test_samples_that_the_model_is_sure_about_say_where_they_are_forgotten(problem):
    model, split = problem
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    with torch.no_grad():
        model[-1].weight.mul_(0)
        model[-1].bias.copy_(torch.tensor([40.0, 0.0, 0.0]))  # their loss is 0 in every digit
    sure = Split((inputs, torch.zeros_like(labels)), forget=range(4), adjacent=range(4, 6), remote=range(6, 8))
    phase = begun(model, sure, settings())
    phase.logged = {}
    _, gradient = phase._distance()
    before = model[-1].bias.clone()
    assert gradient[-1][0] == pytest.approx(2 * (10 + 40 - math.log(2)))
    phase.step(0)
    assert model[-1].bias[0] < before[0]


def test_the_tangent_step_leaves_the_shortfall_as_it_is_to_first_order(problem):
    model, split = problem
    phase = begun(model, split, settings(restore=1e-9))
    phase.logged = {}
    _, uphill = phase._distance()
    phase.step(0)
    product = gram_matrix([phase.velocity, uphill])
    assert abs(product[0, 1]) < 1e-12 * (product[0, 0] * product[1, 1]).sqrt()


@pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
def test_the_tangent_step_descends_on_adjacent_plus_weighted_remote_loss(problem, weight):
    model, split = problem
    inputs, labels = split.samples.dataset.data
    losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
    aims = (losses[8:20].mean() + weight * losses[20:].mean(), shortfall(model, split, 6.0)[0])
    downhill, uphill = (
        torch.cat([part.flatten() for part in torch.autograd.grad(aim, list(model.parameters()), retain_graph=True)])
        for aim in aims
    )
    expected = downhill - (downhill @ uphill) / (uphill @ uphill) * uphill
    phase = begun(model, split, settings(target=6.0, remote_weight=weight, stride=1e3))
    phase.step(0)
    torch.testing.assert_close(torch.cat([part.flatten() for part in phase.velocity]), expected)


def test_the_step_size_falls_to_0_along_a_cosine(problem):
    model, split = problem
    phase = begun(model, split, settings(learning_rate=1e-2, restore=1e-15, epochs=20))
    assert phase.steps == 20
    for number in (0, 5, 10, 15, 19):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        phase.step(number)
        size = 1e-2 * (1 + math.cos(math.pi * number / 20)) / 2
        expected = [start - size * along for start, along in zip(before, phase.velocity, strict=True)]
        torch.testing.assert_close([parameter.detach() for parameter in model.parameters()], expected)


def test_what_the_tangent_step_leaves_is_of_second_order(problem):
    original, split = problem
    changes = []
    for rate in (2e-2, 1e-2):
        model = copy.deepcopy(original)
        before, _ = shortfall(model, split, 6.0)
        begun(model, split, settings(target=6.0, learning_rate=rate, stride=1.0, restore=1e-12)).step(0)
        changes.append((shortfall(model, split, 6.0)[0] - before).item())
    assert changes[0] / changes[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(
    "chosen",
    [
        {"learning_rate": 1e-12, "reach": 0.64},
        {"learning_rate": 1e6, "restore": 1e-12, "stride": 0.009, "reach": 0.009 + 64 * 0.001},
    ],
)
def test_neither_step_is_longer_than_its_bound(problem, chosen):
    model, split = problem
    before = [parameter.detach().clone() for parameter in model.parameters()]
    begun(model, split, settings(**chosen)).step(0)
    moved = [after.detach() - start for after, start in zip(model.parameters(), before, strict=True)]
    lengths = [math.sqrt(sum(part.square().sum().item() for part in parts)) for parts in (moved, before)]
    assert lengths[0] == pytest.approx(0.01 * lengths[1])


def test_a_long_way_does_not_stay_in_the_velocity(problem):
    model, split = problem
    phase = begun(model, split, settings(learning_rate=1e3, stride=0.01, reach=0.02))
    for number in range(9):
        trust = phase.step(number)["trust"].item()
        longest = (0.01 * (1 - trust) + 0.02 * trust) * phase.length
        assert 1e3 * gram_matrix([phase.velocity])[0, 0].sqrt() <= longest * (1 + 1e-9)


def test_trust_grows_while_remote_data_is_unharmed_and_shrinks_while_it_is_not(problem):
    model, split = problem
    phase = begun(model, split, settings(learning_rate=1e-12, reach=1e-12, patience=0.1, epochs=400))

    def trusts(*numbers):
        return [64 * phase.step(number)["trust"].item() for number in numbers]

    assert trusts(*range(9)) == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    phase.remote_loss = phase.remote_loss - 0.2 * phase.chance
    assert trusts(9, 10) == [32, 16]
    assert trusts(*range(11, 17))[-2:] == [1, 1]
    phase.remote_loss = phase.remote_loss + 0.2 * phase.chance
    assert trusts(17) == [2]
    phase.remote_loss = phase.remote_loss - 0.2 * phase.chance
    assert trusts(200, 399) == pytest.approx([64 / 4, 64 * (399 / 400) ** 2])  # the constraint comes first


def test_the_restoring_step_takes_the_share_it_says_to_first_order(problem):
    model, split = problem
    run_phases(Workbench(model, split, device=CPU), [Constrained(settings(target=6.0, epochs=20, reach=0.05))])
    before, _ = shortfall(model, split, 6.0)
    tau = 0.97 * before.item()
    budget = tau / (6.0 - math.log(3)) ** 2
    phase = begun(model, split, settings(target=6.0, budget=budget, learning_rate=1e-12, restore=0.5, reach=64.0))
    phase.step(0)
    after, _ = shortfall(model, split, 6.0)
    assert (after.item() - tau) / (before.item() - tau) == pytest.approx(0.5, abs=0.05)


def test_the_shortfall_returns_below_its_limit_from_a_perturbed_start(problem):
    model, split = problem
    chosen = settings(target=6.0, budget=0.01, reach=0.05, epochs=300)
    run_phases(Workbench(model, split, device=CPU), [Constrained(chosen)])
    limit = 0.01 * (6.0 - math.log(3)) ** 2
    assert shortfall(model, split, 6.0)[0].item() <= 1.01 * limit
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    assert shortfall(model, split, 6.0)[0].item() > 2 * limit
    run_phases(Workbench(model, split, device=CPU), [Constrained(chosen)])
    assert shortfall(model, split, 6.0)[0].item() <= 1.01 * limit


def test_the_bound_holds_at_every_step(problem):
    model, split = problem
    phase = begun(model, split, settings(target=6.0, reach=0.05))
    for number in range(40):
        _, accuracy = shortfall(model, split, 6.0)
        logged = phase.step(number)
        assert accuracy <= logged["forget_bound"] + 1e-12
    assert logged["forget_bound"] < 1


def test_a_loss_of_ones_own_has_no_bound_and_is_raised_all_the_same(problem):
    """Only cross-entropy must be low for a right prediction. For other losses, such as smoothed labels, it need not."""
    model, split = problem

    def smoothed(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.2, reduction="none")

    phase = Constrained(settings(target=6.0, reach=0.05))
    bench = Workbench(model, split, device=CPU, task=OwnLoss(smoothed))
    phase.prepare(bench)
    phase.begin()
    first = {name: value.item() for name, value in phase.step(0).items()}
    for number in range(1, 40):
        last = phase.step(number)
    assert "forget_bound" not in last
    assert last["shortfall"] < 0.5 * first["shortfall"]
    assert last["forget_loss"] > first["forget_loss"]


def test_a_loss_of_ones_own_may_know_no_classes():
    """A model with one output, for instance for two classes, and the user's own loss."""
    torch.manual_seed(0)
    split = Split((torch.randn(24, 3), torch.arange(24) % 2), forget=range(6), adjacent=range(6, 12))

    def binary(model, batch):
        scores = model(batch[0])[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(scores, batch[1].float(), reduction="none")

    model = nn.Linear(3, 1)
    result = unlearn(model, split, "unweave", task=OwnLoss(binary), guard=None, epochs=2, compute=Compute("cpu"))
    assert not torch.equal(result.model.weight, model.weight)
    with pytest.raises(UsageError, match="two outputs for two classes"):
        unlearn(model, split, "unweave", task="classification", compute=Compute("cpu"))


def test_the_bound_at_the_end_is_that_of_the_final_weights(problem, tmp_path):
    model, split = problem
    chosen = {"target": 6.0, "reach": 0.05, "stride": 0.05, "learning_rate": 1e-2, "epochs": 300}
    result = unlearn(model, split, "unweave", out=tmp_path / "run", guard=None, compute=Compute("cpu"), **chosen)
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    with torch.no_grad():
        losses = nn.functional.cross_entropy(result.model(inputs), labels, reduction="none")
    bound, _ = shortfall_bound(losses, target=6.0, classes=3)
    scores = result.scores["train"]["forget"]
    assert scores["forget_bound"] == pytest.approx(bound, rel=1e-6)
    assert scores["accuracy"] <= bound < 0.1


def test_little_adjacent_data_does_not_mean_few_steps(problem):
    model, split = problem
    for values, steps in (({}, 20), ({"least_steps": 90}, 90), ({"least_steps": 5}, 20), ({"epochs": 0}, 0)):
        assert begun(model, split, settings(**values)).steps == steps
    assert begun(model, split, settings(epochs=0, least_steps=90)).steps == 0, "none are none"


def test_a_target_that_proves_nothing_is_refused(problem):
    model, split = problem
    with pytest.raises(UsageError, match=r"above log\(classes\) = 1.10"):
        unlearn(model, split, "unweave", target=1.0, compute=Compute("cpu"))


def test_a_forget_set_that_is_forgotten_already_is_left_alone():
    data = (torch.eye(4), torch.tensor([1, 0, 0, 1]))
    split = Split(data, forget=[0], adjacent=[1], remote=[2, 3])
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
        model.weight[0, 0] = 30.0
    result = unlearn(model, split, "unweave", epochs=3, compute=Compute("cpu"))
    assert result.history.rows[-1]["shortfall"] == 0
