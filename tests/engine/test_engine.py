from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.tensors import same, weights
from unweave import Compute, RunError, UsageError, unlearn
from unweave.data import Samples
from unweave.engine import Batches, CheckpointFolder, History, Phase, ProgressLine, Workbench, run_phases
from unweave.engine.cost import Meter
from unweave.methods import find_method

CPU = torch.device("cpu")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}


def test_a_pass_over_batches_gives_every_sample_once():
    rows = torch.arange(10, 33)
    batches = Batches(Samples((torch.zeros(40, 1), torch.zeros(40))), rows, size=5, seed=1, device=CPU)
    for turn in range(3):
        seen = torch.cat([batches[turn * len(batches) + place].rows for place in range(len(batches))])
        assert sorted(seen.tolist()) == rows.tolist()
    first, second = ([batches[i].rows.tolist() for i in range(s, s + 5)] for s in (0, 5))
    assert first != second
    assert [len(b) for b in batches.several(0, 99)] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize(("count", "size", "sizes"), [(21, 5, [5, 5, 5, 4, 2]), (6, 5, [4, 2]), (4, 3, [2, 2])])
def test_no_sample_is_left_alone_in_a_shuffled_pass(count, size, sizes):
    samples = Samples((torch.zeros(count, 1), torch.zeros(count)))
    batches = Batches(samples, torch.arange(count), size=size, seed=1, device=CPU)
    shuffled, in_order = [batches[number] for number in range(len(batches))], list(batches.in_order())
    assert [len(batch) for batch in shuffled] == sizes
    assert sorted(torch.cat([batch.rows for batch in shuffled]).tolist()) == list(range(count))
    assert [len(batch) for batch in in_order] == [size] * (len(sizes) - 1) + [1]
    assert torch.cat([batch.rows for batch in in_order]).tolist() == list(range(count))


@pytest.mark.parametrize("keep_data", ["device", "host"])
def test_batch_normalisation_learns_from_a_pass_that_leaves_one_sample(split, keep_data):
    """52 kept samples are three batches of 17, and one sample."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    split.samples.keep_data = keep_data
    result = unlearn(model, split, method="ft", epochs=2, batch_size=17, compute=Compute("cpu"))
    assert len(result.history.rows) == 8
    assert (result.cost.sample_forwards, result.cost.sample_gradients) == (104, 104)


def test_batches_do_not_remember():
    def draw(order):
        batches = Batches(Samples((torch.zeros(9, 1), torch.zeros(9))), torch.arange(9), size=2, seed=4, device=CPU)
        return {number: batches[number].rows.tolist() for number in order}

    assert draw([0, 3, 17, 8]) == draw([17, 8, 0, 3])


@pytest.mark.parametrize("method", ["two-stage", "pgd", "ft", "ga"])
def test_one_seed_gives_one_result(model, split, method):
    extra = FAST if method in ("two-stage", "pgd") else {"learning_rate": 1e-2}
    runs = [unlearn(model, split, method=method, seed=seed, compute=Compute("cpu"), **extra) for seed in (1, 1, 2)]
    assert same(weights(runs[0].model), weights(runs[1].model))
    assert runs[0].history.rows == runs[1].history.rows
    if method != "ga":  # whole-set batches leave nothing to chance
        assert not same(weights(runs[0].model), weights(runs[2].model))


def test_the_callers_random_numbers_are_left_alone(model, split):
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(3), random.random(), np.random.rand()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    unlearn(model, split, "two-stage", profile="released", normalisation="train", compute=Compute("cpu"), **FAST)
    assert torch.equal(torch.rand(3), expected[0])
    assert (random.random(), np.random.rand()) == expected[1:]


class Drawing(Phase):
    """Draws from every generator before its first step."""

    steps = 0

    def __init__(self, name):
        self.name = name

    def begin(self):
        self.drawn = (*torch.rand(3).tolist(), random.random(), np.random.rand())

    def step(self, number):
        return {}


def test_what_a_phase_draws_before_its_first_step_depends_on_the_seed_and_its_name_alone(model, split):
    def drawn(names, *, seed, caller):
        torch.manual_seed(caller)
        random.seed(caller)
        np.random.seed(caller)
        phases = [Drawing(name) for name in names]
        run_phases(Workbench(model, split, device=CPU, seed=seed), phases)
        return [phase.drawn for phase in phases]

    first, second = drawn(["one", "two"], seed=1, caller=5)
    assert drawn(["two", "one"], seed=1, caller=6) == [second, first], "neither on the caller nor on what went before"
    assert not set(first) & set(second)
    assert not set(first) & set(*drawn(["one"], seed=2, caller=5))


class Stop(Exception):
    """Stands for a killed process."""


@pytest.mark.parametrize("method", [name for name in ON_ANYTHING if name != "original"])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_stopped_run_resumes_exactly(split, tmp_path, method, stop):
    """Dropout and batch statistics make every step depend on random numbers and buffers too."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    chosen = find_method(method)
    values: dict = {"normalisation": "train"}
    if method in ("two-stage", "pgd"):
        values |= FAST | {"stage1_remote_batch": 10, "stage1_forget_batch": 4}
    elif method == "ssd":
        values |= {"batch_size": 4, "selection": 0.5}
    elif method == "adaptive":  # its statistics never move
        values = {"batch_size": 4, "effort": 4.0, "least_steps": 9}
    else:
        values |= {"learning_rate": 1e-2, "batch_size": 4, "epochs": 4}
        values |= {"least_steps": 9} if method == "unweave" else {}
    settings = chosen.configure(values).with_given(initial=lambda: model)

    def bench():
        return Workbench(copy.deepcopy(model), split, device=CPU, seed=9)

    whole = bench()
    history = run_phases(whole, settings.phases())
    assert len(history) > 7

    phases = list(settings.phases())
    counter = iter(range(10_000))
    for phase in phases:

        def step(number, taken=phase.step):
            if next(counter) == stop:
                raise Stop
            return taken(number)

        phase.step = step
    with pytest.raises(Stop):
        run_phases(bench(), phases, checkpoints=CheckpointFolder(tmp_path, every_seconds=0))

    again = bench()
    resumed = run_phases(again, settings.phases(), checkpoints=CheckpointFolder(tmp_path), resume=True)
    assert same(weights(whole.model), weights(again.model))
    assert history.rows == resumed.rows
    assert whole.cost.sample_gradients == again.cost.sample_gradients


def test_a_checkpoint_of_another_method_is_refused(model, split, tmp_path):
    checkpoints = CheckpointFolder(tmp_path, every_seconds=0)
    ga, ft = find_method("ga"), find_method("ft")
    run_phases(Workbench(copy.deepcopy(model), split, device=CPU), ga().phases(), checkpoints=checkpoints)
    with pytest.raises(UsageError, match="belongs to a run with the phases"):
        bench = Workbench(copy.deepcopy(model), split, device=CPU)
        run_phases(bench, ft().phases(), checkpoints=checkpoints, resume=True)


def test_history_reads_values_late_and_refuses_nan():
    history = History()
    history.add("p", 0, {"loss": torch.tensor(1.5), "other": 2.0})
    history.add("p", 1, {"loss": torch.tensor(float("nan"))})
    with pytest.raises(RunError, match="loss became nan in step 1 of p"):
        _ = history.rows


def test_divergence_stops_the_run_and_leaves_the_model(model, split):
    before = weights(model)
    with pytest.raises(RunError, match="in step"):
        unlearn(model, split, method="ga", learning_rate=1e20, epochs=50, compute=Compute("cpu"))
    assert same(before, weights(model))


def test_bfloat16_stays_near_float32(digits):
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 1}
    runs = {
        precision: unlearn(
            original,
            task.train,
            "two-stage",
            profile="released",
            compute=Compute("cpu", precision=precision),
            **settings,
        ).history.rows
        for precision in ("float32", "bfloat16")
    }
    full, half = ([row["forget_loss"] for row in runs[precision]] for precision in ("float32", "bfloat16"))
    assert full != half
    assert np.mean(np.abs(np.subtract(full, half))) < 0.1 * np.mean(full)


def test_a_frozen_part_stays_frozen(model, split):
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    result = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    assert torch.equal(model[0].weight, result.model[0].weight)
    assert not torch.equal(model[2].weight, result.model[2].weight)


def test_a_parameter_that_is_not_used_is_no_obstacle(model, split):
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    result = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    assert torch.equal(result.model.spare, torch.ones(3))


def test_cost_counts_samples(model, split):
    result = unlearn(model, split, method="ft", epochs=2, batch_size=10, compute=Compute("cpu"))
    assert (result.cost.sample_forwards, result.cost.sample_gradients) == (104, 104)
    assert result.cost.seconds > 0


def test_the_peak_memory_of_a_run_is_the_highest_of_all_its_parts(monkeypatch):
    """The system's own peak begins again wherever somebody looks, and in a resumed process."""
    peaks = iter([300, 500, 200, None])
    monkeypatch.setattr("unweave.runtime.process_memory.peak", lambda: next(peaks))
    meter, found = Meter(CPU), []
    for _ in range(4):
        with meter.running():
            pass
        found.append(meter.cost.process_memory_bytes)
    assert found == [300, 500, 500, 500]


def test_progress_is_silent_without_a_terminal(model, split, capfd):
    unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_progress_shows_phase_step_and_values(capsys):
    line = ProgressLine(show=True, title="two-stage")
    with line:
        line.phase("stage 1", steps=10, done=0)
        assert line.due()
        assert not line.due()
        line.show(5, {"phase": "stage 1", "step": 4, "forget_loss": 1.23456, "multiplier": 0.5})
        line._bar.refresh()
        shown = "".join(part.text for part in line._bar.console.render(line._bar.get_renderable()))
    assert "stage 1" in shown
    assert "5/10" in shown
    assert "forget loss 1.23" in shown
    assert "multiplier" in shown
