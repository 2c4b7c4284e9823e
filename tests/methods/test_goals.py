"""The two goals of our own method and the dial between them: their aims, how near a run comes, and errors."""

import copy
import itertools
import json
import math
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.helpers.calling import unlearn_with
from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from tests.helpers.tiny import tiny
from unweave import Compute, Split, Stopped, StopWhen, UsageError, evaluate, unlearn
from unweave.cli import main
from unweave.engine import Cost, Workbench, run_phases
from unweave.lab.audit import Pool, Subject, make_shadows
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import plan, run_study
from unweave.maths import averaged_quantiles, gram_matrix, odds_of, squared_wasserstein
from unweave.methods.unseen import reference_losses
from unweave.methods.unweave import Constrained, Unweave

CPU = torch.device("cpu")
CHANCE = math.log(3)
UNSEEN = torch.tensor(
    [0.1, 0.4, 0.4, 0.9, 1.5, 2.5, 3.0, 4.0, 5.0, 5.5], dtype=torch.float64
)  # 10 losses for 8 samples


def settings(**values):
    common = {
        "goal": "retrain",
        "reference": UNSEEN,
        "target": 6.0,
        "learning_rate": 1e-2,
        "epochs": 20,
        "batch_size": 12,
    }
    return Unweave(**(common | {"remote_batch": 40, "reach": 0.05} | values))


def bench_of(model, split):
    return Workbench(model, split, device=CPU)


def begun(model, split, chosen):
    phase = Constrained(chosen)
    phase.prepare(bench_of(model, split))
    phase.begin()
    phase.logged = {}
    return phase


def forget_losses(model, split):
    inputs, labels = (column[:8] for column in split.samples.dataset.data)
    return nn.functional.cross_entropy(model(inputs), labels, reduction="none")


def forget_odds(model, split):
    losses = forget_losses(model, split)
    return (losses.exp() - 1).log()


# The distribution aimed at


@pytest.mark.parametrize("count", [1, 4, 7, 10, 13])
def test_to_approach_the_averaged_quantiles_is_to_approach_the_distribution(count):
    averaged = averaged_quantiles(UNSEEN, count)
    apart = [
        squared_wasserstein(losses, UNSEEN) - squared_wasserstein(losses, averaged)
        for losses in 6 * torch.rand(5, count, dtype=torch.float64)
    ]
    torch.testing.assert_close(torch.stack(apart), apart[0].expand(5))
    assert apart[0] == pytest.approx(0, abs=1e-12) if count == 10 else apart[0] > 0


def test_the_dial_goes_the_shortest_way_at_constant_speed(problem):
    aims = {dial: begun(*problem, settings(dial=dial)).aims for dial in (0.0, 0.3, 1.0)}
    length = squared_wasserstein(aims[0.0], aims[1.0]).sqrt()
    torch.testing.assert_close(squared_wasserstein(aims[0.0], aims[0.3]).sqrt(), 0.3 * length)
    torch.testing.assert_close(squared_wasserstein(aims[0.3], aims[1.0]).sqrt(), 0.7 * length)


@pytest.mark.parametrize("dial", [0.0, 0.4, 1.0])
def test_pairing_ranks_is_the_best_coupling_all_along_the_dial(dial):
    phase = Constrained(settings(dial=dial))
    losses, aims = 6 * torch.rand(2, 5, dtype=torch.float64)
    ordered = aims.sort().values
    best = min(phase._cost(torch.stack(order) - losses).sum() for order in itertools.permutations(aims))
    torch.testing.assert_close(phase._cost(ordered - losses.sort().values).sum(), best)


def test_the_distance_and_its_gradient_are_those_of_w2_over_the_whole_forget_set(problem):
    model, split = problem
    value, gradient = begun(model, split, settings(forget_batch=3))._distance()
    expected = squared_wasserstein(forget_odds(model, split), averaged_quantiles(odds_of(UNSEEN), 8))
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, list(torch.autograd.grad(expected, list(model.parameters()))))


def test_with_a_model_as_reference_every_sample_aims_at_its_own_odds(problem):
    model, split = problem
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    phases = {
        pairing: begun(model, split, settings(pairing=pairing, reference=other)) for pairing in ("sample", "rank")
    }
    bench = bench_of(model, split)
    aims = odds_of(reference_losses(other, bench, bench.batches("forget", size=512)))
    expected = (aims - forget_odds(model, split)).square().mean()
    value, gradient = phases["sample"]._distance()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, list(torch.autograd.grad(expected, list(model.parameters()))))
    nearest, _ = phases["rank"]._distance()
    torch.testing.assert_close(nearest, squared_wasserstein(forget_odds(model, split), aims).detach())
    assert nearest < 0.99 * value  # which samples are recognised differs, not only how many


def test_the_end_of_the_dial_is_erase(problem):
    model, split = problem
    chosen = {"target": 6.0, "learning_rate": 1e-2, "epochs": 5, "guard": None, "compute": Compute("cpu")}
    erased = unlearn(model, split, "unweave", **chosen)
    dialled = unlearn(model, split, "unweave", goal="retrain", dial=1.0, reference=UNSEEN, **chosen)
    assert same(weights(erased.model), weights(dialled.model))


# The constraint


def test_the_tangent_step_leaves_the_distance_as_it_is_to_first_order(problem):
    phase = begun(*problem, settings(restore=1e-9))
    _, uphill = phase._distance()
    phase.step(0)
    product = gram_matrix([phase.velocity, uphill])
    assert abs(product[0, 1]) < 1e-12 * (product[0, 0] * product[1, 1]).sqrt()


@pytest.mark.parametrize("dial", [0.0, 0.5])
def test_the_distance_returns_below_its_limit_from_a_perturbed_start(problem, dial):
    model, split = problem
    chosen = settings(budget=0.01, epochs=400, dial=dial)
    phase = begun(model, split, chosen)
    limit = 0.01 * (phase.aims - CHANCE).square().mean()

    def distance():
        return phase._cost(phase.aims - forget_odds(model, split).detach().sort().values).mean()

    run_phases(bench_of(model, split), [Constrained(chosen)])
    assert distance() <= 1.01 * limit
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert distance() > 2 * limit
    run_phases(bench_of(model, split), [Constrained(chosen)])
    assert distance() <= 1.01 * limit


def test_every_sample_comes_as_near_to_its_own_aim_as_the_budget_says(problem):
    model, split = problem
    torch.manual_seed(1)
    reference = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    chosen = settings(budget=0.01, epochs=400, reference=reference)
    phase = begun(model, split, chosen)
    limit = 0.01 * (phase.aims - CHANCE).square().mean()
    assert (phase.aims - forget_odds(model, split).detach()).square().mean() > 2 * limit
    run_phases(bench_of(model, split), [Constrained(chosen)])
    assert (phase.aims - forget_odds(model, split).detach()).square().mean() <= 1.01 * limit


def test_mean_loss_and_mean_probability_are_as_near_as_the_distribution(problem):
    model, split = problem
    result = unlearn(
        model, split, "unweave", reference=UNSEEN, guard=None, compute=Compute("cpu"), **settings(epochs=400).to_dict()
    )
    losses = forget_losses(result.model, split).detach()
    apart = squared_wasserstein(odds_of(losses), odds_of(UNSEEN)).sqrt()
    assert apart < 0.5
    assert abs(losses.mean() - UNSEEN.mean()) <= apart
    assert abs((-losses).exp().mean() - (-UNSEEN).exp().mean()) <= apart


# Where the reference comes from


def test_a_reference_model_is_made_as_sure_as_the_original(problem):
    model, split = problem
    unsure = nn.Sequential(model, nn.Linear(3, 3, bias=False)).double()
    with torch.no_grad():
        unsure[1].weight.copy_(0.25 * torch.eye(3))
    bench = bench_of(model, split)
    found = reference_losses(unsure, bench, bench.batches("forget", size=3))
    torch.testing.assert_close(found, forget_losses(model, split).detach())


@pytest.mark.parametrize("kind", ["model", "split"])
def test_to_measure_the_reference_moves_no_statistics(problem, kind):
    model, split = problem
    normalised = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    bench = bench_of(normalised, split)
    bench.mode("train")
    before = normalised[1].running_mean.clone()
    reference_losses(model if kind == "model" else split, bench, bench.batches("forget", size=8))
    assert torch.equal(normalised[1].running_mean, before)
    assert normalised.training


def test_with_held_out_data_a_forget_sample_aims_at_the_unseen_loss_of_its_own_rank(problem):
    model, split = problem
    kept = torch.from_numpy(split.rows("adjacent", "remote").numpy())
    inputs, labels = split.samples.dataset.data
    draw = torch.Generator().manual_seed(0)
    unseen = (torch.randn(300, 5, dtype=torch.float64, generator=draw), torch.arange(300) % 3)
    held_out = Split(unseen, forget=[0], adjacent=range(10, 300), remote=[7])
    bench = bench_of(model, split)
    found = reference_losses(held_out, bench, bench.batches("forget", size=8))
    trained = nn.functional.cross_entropy(model(inputs[kept]), labels[kept], reduction="none").detach()
    theirs = nn.functional.cross_entropy(model(unseen[0][10:]), unseen[1][10:], reduction="none").detach()
    ranks = (trained[None] < forget_losses(model, split).detach()[:, None]).double().mean(1)
    torch.testing.assert_close(found, theirs.quantile(ranks))
    same_data = Split(split.samples, forget=split.forget, adjacent=kept.tolist(), allow_empty=True)
    assert reference_losses(same_data, bench, bench.batches("forget", size=8)).shape == (8,)


def test_held_out_data_of_labels_that_are_not_kept_gives_its_losses_as_they_are(problem):
    model, split = problem
    inputs, labels = torch.randn(9, 5, dtype=torch.float64), torch.full((9,), 2)
    kept = split.rows("adjacent", "remote")
    own = split.samples.labels()
    some = kept[own[kept] != 2]
    forget = [int(row) for row in split.rows("forget")]
    smaller = Split(split.samples, forget, some[:4].tolist(), some[4:].tolist())
    held_out = Split((inputs, labels), forget=[0], adjacent=[4, 5, 6], remote=[7])
    bench = bench_of(model, smaller)
    expected = nn.functional.cross_entropy(model(inputs[4:7]), labels[4:7], reduction="none")
    torch.testing.assert_close(reference_losses(held_out, bench, bench.batches("forget", size=8)), expected.detach())


def test_a_run_that_aims_at_held_out_data_ends_where_there_is_nothing_to_do(problem):
    model, split = problem
    draw = torch.Generator().manual_seed(0)
    unseen = (torch.randn(300, 5, dtype=torch.float64, generator=draw), torch.arange(300) % 3)
    held_out = Split(unseen, [], range(300), [], allow_empty=True)
    chosen = {"goal": "retrain", "guard": None, "compute": Compute("cpu"), "epochs": 30}
    needless = unlearn(model, split, "unweave", reference=held_out, budget=0.9, **chosen)
    assert len(needless.history.rows) == 1
    needed = unlearn(model, split, "unweave", reference=held_out, budget=1e-6, **chosen)
    assert len(needed.history.rows) > 10


def test_what_a_brief_training_cost_is_counted(problem):
    model, split = problem
    brief = unlearn_with(
        model, split, "retrain", initial=lambda: copy.deepcopy(model), epochs=2, guard=None, compute=Compute("cpu")
    )
    common = {"goal": "retrain", "epochs": 1, "guard": None, "compute": Compute("cpu")}
    given = unlearn(model, split, "unweave", reference=brief.model, **common)
    made = unlearn(model, split, "unweave", reference=lambda: brief, **common)
    assert brief.cost.sample_gradients == 2 * 52
    assert made.cost.sample_gradients == given.cost.sample_gradients + brief.cost.sample_gradients
    assert same(weights(made.model), weights(given.model))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (None, "pass reference="),
        (2.5, "not of shape"),
        ([], "non-empty list of losses, not of shape"),
        ([[1.0], [2.0]], r"not of shape \(2, 1\)"),
        ([0.5, float("nan")], "entry 1 is nan"),
        (torch.tensor([float("inf")]), "entry 0 is inf"),
        ("losses", "'reference' cannot be given as text"),
    ],
)
def test_a_bad_reference_is_refused_before_anything_is_changed(problem, tmp_path, reference, message):
    model, split = problem
    before = weights(model)
    with pytest.raises(UsageError, match=message):
        unlearn(
            model, split, "unweave", goal="retrain", reference=reference, out=tmp_path / "run", compute=Compute("cpu")
        )
    assert same(weights(model), before)
    assert list(tmp_path.iterdir()) == []


def test_held_out_data_without_adjacent_samples_is_refused(problem):
    model, split = problem
    held_out = Split(split.samples, forget=[0], adjacent=[], remote=[1], allow_empty=True)
    with pytest.raises(UsageError, match="without adjacent samples"):
        unlearn(model, split, "unweave", goal="retrain", reference=held_out, compute=Compute("cpu"))


@pytest.mark.parametrize(("method", "words"), [("unweave", "with the goal retrain"), ("two-stage", "goal=.retrain.")])
def test_a_reference_that_nothing_reads_is_refused(problem, method, words):
    with pytest.raises(UsageError, match=words):
        unlearn(*problem, method, reference=UNSEEN, compute=Compute("cpu"))


def test_a_resumed_run_needs_its_reference_no_more(problem, tmp_path):
    model, split = problem
    made = []

    class Made:
        def __init__(self):
            made.append(1)
            self.model, self.cost = copy.deepcopy(model), Cost()

    common = {"goal": "retrain", "epochs": 6, "guard": None, "reference": Made, "compute": Compute("cpu")}
    whole = unlearn(model, split, "unweave", **common)
    with pytest.raises(Stopped):
        unlearn(model, split, "unweave", out=tmp_path / "run", callbacks=[StopWhen(lambda: True)], **common)
    resumed = unlearn(model, split, "unweave", out=tmp_path / "run", resume=True, **common)
    assert same(weights(whole.model), weights(resumed.model))
    assert len(made) == 2  # once for the whole run, once for the run that was stopped


# On benchmarks


@pytest.fixture(scope="module", params=[0, 1, 2])
def unlearned(request):
    """Return the digits' scores at both goals for a seed, beside a retrained model."""
    seed, benchmark = request.param, find_benchmark("digits")
    task = benchmark.load()
    original = benchmark.train(task, seed=seed, device="cpu")
    common = {"seed": seed, "compute": Compute("cpu")}
    recipe = {**benchmark.recipe.to_dict(), "initial": lambda: benchmark.initial(seed)}
    retrained = unlearn(original, task.train, "retrain", **common, **recipe).model
    values = {**common, **benchmark.settings["unweave"]["default"]}

    def scores(**chosen):
        result = unlearn(original, task.train, "unweave", **values, **chosen)
        asked = {"reference": retrained, "original": original, "questions": ("reference",), "resamples": 0}
        return evaluate(result.model, task.train, task.test, compute=Compute("cpu"), **asked), result.history.rows[-1]

    brief = benchmark.train_briefly(original, task.train, seed=seed, device="cpu")
    return {"erase": scores(), "retrain": scores(goal="retrain", reference=brief.model)}


def test_digits_are_erased_within_the_budget_and_the_rest_is_kept(unlearned):
    scores, last = unlearned["erase"]
    assert scores["train"]["forget"]["accuracy"] <= 0.005
    assert scores["train"]["adjacent"]["accuracy"] >= 0.98
    assert scores["train"]["remote"]["accuracy"] >= 0.99
    assert scores["test"]["forget"]["accuracy"] <= 0.06
    assert scores["test"]["remote"]["accuracy"] >= 0.95
    assert last["forget_bound"] <= 0.0051


def test_digits_are_as_if_never_trained(unlearned):
    (scores, _), (erased, _) = unlearned["retrain"], unlearned["erase"]
    assert scores["model"]["tow_split"] >= 0.8
    assert scores["model"]["tow_split"] > erased["model"]["tow_split"]
    assert scores["train"]["forget"]["loss_wasserstein"] < erased["train"]["forget"]["loss_wasserstein"]
    assert scores["train"]["adjacent"]["accuracy"] >= 0.98
    assert scores["train"]["remote"]["accuracy"] >= 0.99


@pytest.mark.parametrize("alone", ["initial weights", "order of batches"])
def test_a_brief_reference_shares_no_random_numbers_with_the_retrained_model_that_judges_it(alone):
    """Otherwise the method would be guided by the model that it is later compared with."""
    steps = {"initial weights": 1e-12, "order of batches": 1e-2}  # steps of almost no length keep the initial weights
    recipe = replace(tiny().recipe, epochs=5, learning_rate=steps[alone])
    benchmark = replace(tiny(), recipe=recipe)
    if alone == "order of batches":
        first = benchmark.initial(0)
        benchmark = replace(benchmark, model=lambda: copy.deepcopy(first))
    task = benchmark.load()

    def apart(first, second):
        pairs = zip(weights(first), weights(second), strict=True)
        return max((one - other).abs().max().item() for one, other in pairs)

    def brief(seed):
        return benchmark.train_briefly(benchmark.initial(9), task.train, seed=seed, device="cpu").model

    def retrained(seed):  # for as many epochs as the reference
        values = recipe.to_dict() | {"epochs": 1, "seed": seed, "guard": None, "compute": Compute("cpu")}
        return unlearn_with(
            benchmark.initial(9), task.train, "retrain", initial=lambda: benchmark.initial(seed), **values
        ).model

    references = [brief(seed) for seed in range(3)]
    assert apart(references[0], brief(0)) == 0
    for reference, seed in itertools.product(references, range(3)):
        assert apart(reference, retrained(seed)) > 1e-4
    assert all(apart(*pair) > 1e-4 for pair in itertools.combinations(references, 2))


def test_a_study_runs_both_goals_and_says_how_near_each_is_to_retraining(tmp_path):
    grid = {"goal": ["erase", "retrain"], "learning_rate": ["0.01"], "reach": ["0.05"], "epochs": ["100"]}
    cells = plan(["retrain", "unweave"], seeds=1, grid=grid)
    store = run_study(tiny(), cells, tmp_path / "study", device="cpu")
    found = {
        (row["variant"].startswith("goal=retrain"), row["metric"]): row["value"]
        for row in store.rows()
        if row["method"] == "unweave" and row["metric"] in ("tow_split", "forget_bound", "sample_gradients")
    }
    assert found[True, "tow_split"] > found[False, "tow_split"]
    assert found[False, "forget_bound"] <= 0.01
    assert found[True, "sample_gradients"] == found[False, "sample_gradients"] + 2 * 52  # 2 of 10 epochs, briefly


def test_shadow_models_of_an_audit_aim_at_the_same_goal(tmp_path):
    benchmark = tiny()
    task = benchmark.load()
    chosen = {"goal": "retrain", "epochs": 1}
    subject = Subject(
        model=benchmark.initial(0),
        train=task.train,
        test=task.test,
        benchmark=benchmark,
        method="unweave",
        settings=chosen,
    )
    assert len(make_shadows(subject, Pool(subject.train, subject.test), 4, folder=tmp_path, device="cpu")) == 4


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs the digits from the command line and returns its exit code and its errors."""

    def call(*words):
        common = ["unweave", "run", "digits", "--out", str(tmp_path / "run"), "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [*common, *words])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            main()
        return ended.value.code, " ".join(capsys.readouterr().err.split())

    return call


def test_the_command_takes_a_goal_and_given_losses(command, tmp_path):
    file = tmp_path / "losses.json"
    file.write_text(json.dumps(UNSEEN.tolist()))
    words = ["--method", "unweave", "--goal", "retrain", "--reference", str(file), "--set", "epochs=1"]
    assert command(*words)[0] == 0
    config = configuration(tmp_path / "run")
    assert config["settings"]["goal"] == "retrain"
    assert config["reference"] == "10 given losses, mean 2.33"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "unweave", "--goal", "both"], "goal is 'both', but must be one of erase, retrain."),
        (["--method", "two-stage", "--goal", "retrain"], "a setting goal (unweave), not for two-stage"),
        (["--method", "unweave", "--goal", "retrain", "--reference", "{empty}"], "non-empty list of losses"),
        (
            ["--method", "unweave", "--goal", "retrain", "--reference", "{negative}"],
            "entry 1 is -2, but a cross-entropy",
        ),
        (
            ["--method", "unweave", "--goal", "retrain", "--reference", "{text}"],
            "entry 2 is 'a', but must be a number.",
        ),
        (["--method", "unweave", "--reference", "{good}"], "only the method unweave reads it, with the goal retrain"),
    ],
)
def test_a_wrong_goal_gets_one_sentence_before_anything_is_trained(command, tmp_path, monkeypatch, words, message):
    monkeypatch.setattr("unweave.lab.benchmarks.Benchmark.train", None)
    files = {"empty": "[]", "good": "[1.0, 2.0]", "negative": "[1.0, -2]", "text": '[1.0, 2.0, "a"]'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, said = command(*(word.format(**{name: tmp_path / name for name in files}) for word in words))
    assert code == 2
    assert message in said
