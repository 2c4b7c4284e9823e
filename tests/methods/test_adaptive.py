"""The default method: constraint held, the best round returned, length found, exact resume, no settings needed."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import unweave as uw
from tests.helpers.strangers import accuracy, blobs, mlp, normed, trained, wide_scale
from tests.helpers.tensors import same, weights
from unweave.engine import HeldBack, Workbench, run_phases
from unweave.methods.adaptive import Adaptive

CPU = uw.Compute("cpu")
QUIET = uw.Progress(show=False)


@pytest.fixture(scope="module")
def case():
    data, labels, groups = blobs()
    model = trained(data, labels, mlp)
    split = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)
    return model, split


@pytest.mark.parametrize(
    ("network", "how"),
    [
        (mlp, {}),
        (mlp, {"rate": 0.1, "sgd": True}),
        (normed, {}),
        (normed, {"rate": 1e-4, "epochs": 100}),
        (wide_scale, {}),
        (mlp, {"rate": 1e-3, "epochs": 5}),
    ],
)
@pytest.mark.parametrize("request_", ["class", "random"])
def test_a_stranger_needs_no_settings(network, how, request_):
    """Six ways to train, no settings: forgotten, kept, and no warning."""
    data, labels, groups = blobs()
    model = trained(data, labels, network, **how)
    if request_ == "class":
        split = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)
    else:
        known = model(data).argmax(dim=1) == labels
        gone = known.nonzero()[::60, 0].tolist()
        split = uw.Split((data, labels), gone, sorted({*range(1, 900, 7)} - {*gone}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", uw.RunWarning)
        result = uw.unlearn(model, split, compute=CPU, callbacks=[QUIET])
    assert result.method == "adaptive"
    assert accuracy(result.model, (data, labels), split.forget) <= 0.01
    for rows in (split.adjacent, split.remote):
        assert accuracy(result.model, (data, labels), rows) >= accuracy(model, (data, labels), rows) - 0.08


def test_the_constraint_holds_and_rounds_are_logged(case):
    model, split = case
    result = uw.unlearn(model, split, compute=CPU, callbacks=[QUIET])
    judged = [row for row in result.history if "recognised" in row]
    assert judged[-1] is result.history.rows[-1], "a run ends with a round"
    assert any(row["recognised"] <= 0.005 for row in judged)
    assert {"held_adjacent", "held_remote"} <= set(judged[0])


def test_the_best_round_is_returned_not_the_last(case, monkeypatch):
    """A later round that keeps less, though it holds the constraint, does not count."""
    model, split = case
    method = Adaptive(effort=4.0, tolerance=0.0, least_steps=5)
    values = iter([1.0, 1.0, 0.9, 0.3, 0.2, 0.1, 0.1])  # before the run, after the trial, at the end of each round
    first = []

    def known(self, *, usual):
        now = next(values)
        if now == 0.9:
            first.extend(parameter.detach().clone() for parameter in self.bench.parameters)
        return torch.tensor([now, now], dtype=torch.float64)

    monkeypatch.setattr(HeldBack, "known", known)
    bench = Workbench(copy.deepcopy(model), split, device=torch.device("cpu"))
    (phase,) = method.phases()
    run_phases(bench, [phase])
    assert same([parameter.detach() for parameter in bench.parameters], first)


@pytest.mark.parametrize("effort", [1.0, 3.0, 12.0])
@pytest.mark.parametrize("budget", [0.005, 0.1])
def test_what_is_returned_fulfils_the_constraint(case, effort, budget):
    """Whatever round it is of, it keeps the most of those rounds that do."""
    model, split = case
    method = Adaptive(effort=effort, budget=budget, tolerance=0.0, gain=0.0)
    result = uw.unlearn(model, split, method, compute=CPU, callbacks=[QUIET], guard=None)
    assert accuracy(result.model, blobs()[:2], split.forget) <= budget
    judged = [row for row in result.history if "held_adjacent" in row]
    assert judged[-1] is result.history.rows[-1]
    best = max(row["held_adjacent"] + row["held_remote"] for row in judged if row["recognised"] <= budget)
    bench = Workbench(copy.deepcopy(result.model), split, device=torch.device("cpu"))
    held = HeldBack(bench, share=method.held_back, most=method.held_most)
    assert float(held.known(usual=torch.zeros(())).sum()) == pytest.approx(best)


def test_length_follows_the_effort(case):
    model, split = case
    short = Adaptive(effort=1.0, batch_size=2)
    result = uw.unlearn(model, split, short, guard=None, compute=CPU, callbacks=[QUIET])
    assert len(result.history) == (len(split.adjacent) + len(split.remote)) / 4


def test_a_larger_margin_forgets_more_of_what_was_never_seen():
    """The dial."""
    data, labels, groups = blobs(300, spread=2.5)
    model = trained(data, labels, mlp)
    split = uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)
    unseen, truth, of = blobs(seed=1, spread=2.5)
    shares = []
    for margin in (0.2, 10.0):
        result = uw.unlearn(model, split, uw.Adaptive(margin=margin), compute=CPU, callbacks=[QUIET], guard=None)
        with torch.no_grad():
            known = result.model(unseen).argmax(dim=1) == truth
        shares.append(known[of == 4].double().mean().item())
    assert shares[1] < shares[0]


def test_a_stopped_run_ends_with_the_same_weights(case, tmp_path):
    """Stopped before, at and after the end of a round, and resumed each time."""
    model, (data, labels, _) = case[0], blobs()
    split = uw.Split((data, labels), range(0, 900, 25), range(1, 900, 5), allow_empty=True)
    method = Adaptive(effort=5.0, tolerance=0.0, least_steps=6, batch_size=64, held_back=0.3)
    whole = uw.unlearn(model, split, method, compute=CPU, callbacks=[QUIET], guard=None)
    assert len(whole.history) > 8
    done, out = 0, tmp_path / "run"
    for stop in (3, 6, 7, 8, len(whole.history) - 1):
        asked = []
        halt = uw.StopWhen(lambda asked=asked, more=stop - done: bool(asked.append(1)) or len(asked) == more)
        with pytest.raises(uw.Stopped):
            uw.unlearn(model, split, method, out=out, resume=done > 0, compute=CPU, callbacks=[QUIET, halt], guard=None)
        done = stop
    again = uw.unlearn(model, split, method, out=out, resume=True, compute=CPU, callbacks=[QUIET], guard=None)
    assert same(weights(again.model), weights(whole.model))
    assert again.history.rows == whole.history.rows


def test_samples_that_are_held_back_are_never_descended_on(case):
    model, split = case
    bench = Workbench(copy.deepcopy(model), split, device=torch.device("cpu"))
    (phase,) = Adaptive().phases()
    phase.prepare(bench)
    for name, rows in phase.held.rows.items():
        assert len(rows) == int(0.1 * len(split[name]))
        used = torch.cat([batch.rows for batch in phase.kept[name].in_order()])
        assert not set(rows.tolist()) & set(used.tolist())
        assert len(rows) + len(used) == len(split[name])


def test_the_tangent_step_leaves_the_shortfall_as_it_is(case):
    """To first order: ⟨u, d⟩ = 0 after the projection in the metric."""
    model, split = case
    bench = Workbench(copy.deepcopy(model), split, device=torch.device("cpu"))
    (phase,) = Adaptive(restore=1e-9).phases()
    phase.prepare(bench)
    phase.begin()
    uphill = []
    keep = phase._shortfall
    phase._shortfall = lambda number: uphill.append(keep(number)) or uphill[-1]
    phase.step(0)
    _, gradient = uphill[0]
    dot = sum(float((one * other).sum()) for one, other in zip(gradient, phase.velocity, strict=True))
    sizes = [sum(float(part.square().sum()) for part in some) ** 0.5 for some in (gradient, phase.velocity)]
    assert abs(dot) < 1e-5 * sizes[0] * sizes[1]


def test_without_adjacent_data_there_is_remote_data(case):
    model, split = case
    bare = uw.Split(split.samples, split.forget, [], allow_empty=True)
    result = uw.unlearn(model, bare, compute=CPU, callbacks=[QUIET])
    assert accuracy(result.model, blobs()[:2], bare.forget) <= 0.01


@pytest.mark.parametrize("rate", [0.3, 1e-9])
def test_the_advice_of_the_guard_helps(case, rate):
    """Follow what an error or a warning says, on the case that failed."""
    model, split = case
    ascend = uw.GradientAscent(learning_rate=rate, epochs=30)
    failed = (
        pytest.raises(uw.CollapseError, match="Use the method adaptive")
        if rate == 0.3
        else pytest.warns(uw.RunWarning, match="hardly forgotten. Use the method adaptive")
    )
    with failed:
        uw.unlearn(model, split, ascend, compute=CPU, callbacks=[QUIET])
    result = uw.unlearn(model, split, "adaptive", compute=CPU, callbacks=[QUIET])
    assert result.verdict.forgotten
    assert result.verdict.kept


def test_the_advice_to_raise_the_effort_helps():
    """Samples in tight clusters take many rounds: a run cut short says so, and a longer one keeps the rest."""
    data, labels, _ = blobs()
    model = trained(data, labels, normed)
    gone = (model(data).argmax(dim=1) == labels).nonzero()[::60, 0].tolist()
    split = uw.Split((data, labels), gone, sorted({*range(1, 900, 7)} - {*gone}))
    with pytest.warns(uw.RunWarning, match="kept data was lost. Raise effort"):
        uw.unlearn(model, split, uw.Adaptive(effort=0.6), compute=CPU, callbacks=[QUIET])
    with warnings.catch_warnings():
        warnings.simplefilter("error", uw.RunWarning)
        result = uw.unlearn(model, split, uw.Adaptive(effort=12.0), compute=CPU, callbacks=[QUIET])
    assert accuracy(result.model, (data, labels), split.forget) == 0


def test_what_cannot_be_told_apart_is_said(case):
    """Copies of the forget samples are kept: no model can forget the ones and keep the others."""
    _, split = case
    data, labels, _ = blobs()
    gone = torch.from_numpy(split.forget)
    twins = (torch.cat([data, data[gone]]), torch.cat([labels, labels[gone]]))
    model = trained(*twins, mlp)
    impossible = uw.Split(twins, gone, range(len(data), len(data) + len(gone)))
    with pytest.warns(uw.RunWarning, match=r"adjacent accuracy .* kept data was lost. Raise effort|hardly forgotten"):
        result = uw.unlearn(
            model, impossible, uw.Adaptive(effort=3.0), guard={"adjacent_accuracy_drop": 1.0}, compute=CPU
        )
    assert result.verdict.kept is False or result.verdict.forgotten is False


class Fragile:
    """Says that held-back samples are known while the weights have moved by at most a share of themselves."""

    def __init__(self, most):
        self.most, self.moves = most, []

    def __call__(self, held, *, usual):
        now = [parameter.detach().clone() for parameter in held.bench.parameters]
        self.start = getattr(self, "start", now)
        way = sum((a - b).square().sum() for a, b in zip(now, self.start, strict=True)).sqrt()
        self.moves.append(float(way / sum(b.square().sum() for b in self.start).sqrt()))
        return torch.full((2,), float(self.moves[-1] <= self.most), dtype=torch.float64)


def trial(case, monkeypatch, most):
    """Begin a run on a model that bears so large moves; return the phase, what was tried, and the weights after it."""
    model, split = case
    fragile = Fragile(most)
    monkeypatch.setattr(HeldBack, "known", lambda held, *, usual: fragile(held, usual=usual))
    bench = Workbench(copy.deepcopy(model), split, device=torch.device("cpu"), seed=0)
    (phase,) = Adaptive().phases()
    phase.prepare(bench)
    phase.begin()
    return phase, fragile, weights(bench.model)


def test_a_trial_finds_the_largest_steps_that_kept_data_bears(case, monkeypatch):
    model, _ = case
    before = weights(model)
    phase, fragile, after = trial(case, monkeypatch, 1.0)
    assert float(phase.trust) == 1.0
    full = fragile.moves[1]
    for most, trust in ((0.5 * full, 1 / 4), (0.1 * full, 1 / 16), (0.0, 1 / 64)):
        phase, fragile, after = trial(case, monkeypatch, most)
        assert float(phase.trust) == trust
        assert fragile.moves[1:] == sorted(fragile.moves[1:], reverse=True), "each trial moves less than the one before"
    assert same(before, after), "a trial is undone"
    assert not any(part.any() for part in (*phase.velocity, *phase.squares)), "nothing of a trial is remembered"


def test_a_trial_that_succeeds_changes_nothing(case, monkeypatch):
    model, split = case
    tried = uw.unlearn(model, split, compute=CPU, callbacks=[QUIET])
    monkeypatch.setattr("unweave.methods.adaptive.Rounds._trusted", lambda self: torch.ones((), dtype=torch.float64))
    untried = uw.unlearn(model, split, compute=CPU, callbacks=[QUIET])
    assert same(weights(tried.model), weights(untried.model))
