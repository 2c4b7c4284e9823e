"""Recorded passes give what plain passes give, and what cannot be recorded runs as it is written.

On the CPU the recording is acted out (`tests.helpers.recorded`); `tests/engine/test_cuda.py` records on a GPU.
"""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING, OTHERS, quick
from tests.helpers.recorded import acting
from tests.helpers.tensors import same, weights
from unweave import Checkpoints, Compute, OwnLoss, Split, unlearn
from unweave.engine import Phase, Workbench, run_phases
from unweave.engine.compiling import captures, recording
from unweave.errors import UsageError

CPU = torch.device("cpu")


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, values):
        return self.layers(values)


@pytest.fixture
def normalised(data):
    torch.manual_seed(2)
    return Normalised(), Split(data, forget=range(9), adjacent=range(9, 21), remote=range(21, 60))


class Differentiating(Phase):
    """A phase as a user may write it."""

    name = "own"
    steps = 3

    def step(self, number):
        loss = self.bench.losses(self.bench.batches("remote", size=8)[number]).mean()
        assert all(part is not None for part in torch.autograd.grad(loss, self.bench.parameters))
        return {"loss": loss.detach()}


def run(model, split, name, **more):
    settings = quick(name)
    return unlearn_with(
        model,
        split,
        method=name,
        seed=7,
        initial=lambda: copy.deepcopy(model),
        **{"compute": Compute("cpu"), **settings, **more},
    )


def begun(model, split, **more):
    """Return a workbench in the first step of a phase, and a batch."""
    bench = Workbench(copy.deepcopy(model).eval(), split, device=CPU, **more)
    bench.forward.compiling.step(0, of=99)
    return bench, bench.batches("remote", size=8)[0]


@pytest.mark.parametrize("name", ON_ANYTHING)
def test_every_method_gives_the_same_with_recorded_passes(name, normalised):
    model, split = normalised
    plain = run(model, split, name)
    with acting() as made:
        recorded = run(model, split, name)
    assert same(weights(plain.model), weights(recorded.model))
    assert plain.history.rows == recorded.history.rows
    assert plain.cost.sample_gradients == recorded.cost.sample_gradients
    assert bool(made) == (name != "original")


def test_a_run_killed_among_recorded_passes_is_resumed_to_the_bit(normalised, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage2

    model, split = normalised
    more = {"stage2_adjacent_batch": 3, "guard": None}
    with acting() as made:
        whole = run(model, split, "two-stage", **more)
        taken = Stage2.step
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(Stage2, "step", lambda self, number: taken(self, number) if number < 5 else 1 / 0)
            run(model, split, "two-stage", out=tmp_path / "run", callbacks=[Checkpoints(steps=1)], **more)
        resumed = run(model, split, "two-stage", out=tmp_path / "run", resume=True, **more)
    assert made
    assert same(weights(whole.model), weights(resumed.model))


def test_two_passes_of_one_shape_may_wait_and_a_third_runs_plainly(normalised):
    model, split = normalised
    model.eval()
    gradients = []
    for recorded in (False, True):
        with acting() as made:
            bench = Workbench(copy.deepcopy(model), split, device=CPU, compile="auto" if recorded else "off")
            batches = bench.batches("remote", size=8)
            bench.forward.compiling.step(0, of=99)
            together = torch.stack([bench.losses(batches[number]).mean() for number in range(3)])
            gradients.append(bench.gradient([together.square().sum()]))
            assert len(made) == (2 if recorded else 0)
    for plain, repeated in zip(*gradients, strict=True):
        assert torch.allclose(plain, repeated, atol=1e-6)


class Hooked(Normalised):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.layers[0].register_forward_hook(self.count)

    def count(self, *_):
        self.seen += 1


class Drawing(Normalised):
    """A network that skips a layer by chance, by the host's generator."""

    def forward(self, values):
        return super().forward(values) * (0.5 if torch.rand(()) < 0.5 else 1.0)


class Counting(Normalised):
    calls = 0

    def forward(self, values):
        self.calls += 1
        return super().forward(values) * (1 + 0.2 * (self.calls % 2))


class Unwilling(Normalised):
    def forward(self, values):
        if getattr(self, "never", False):
            raise RuntimeError("operation not permitted when stream is capturing")
        return super().forward(values)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Hooked, "hooks"), (Drawing, "random numbers"), (Counting, "differ"), (Unwilling, "not permitted")],
)
def test_a_model_that_cannot_be_recorded_runs_as_it_is_written(kind, reason, normalised, monkeypatch, caplog):
    _, split = normalised
    torch.manual_seed(2)
    model = kind()
    record = recording.record

    def refused(work, pool, device):
        try:
            model_of_work.never = True
            return record(work, pool, device)
        finally:
            model_of_work.never = False

    # The patch ends before that of `acting`: undone later, it would leave the stand-in for the tests after this one.
    with acting() as made, monkeypatch.context() as patched, caplog.at_level(logging.INFO, logger="unweave"):
        record = recording.record
        model_of_work = model
        bench = Workbench(model, split, device=CPU)
        if kind is Unwilling:
            patched.setattr(recording, "record", refused)
        bench.forward.compiling.step(0, of=99)
        bench.mode("eval")
        before = weights(model)
        losses = bench.losses(bench.batches("remote", size=8)[0])
    assert not made
    assert losses.requires_grad
    assert same(before, weights(model))
    assert any(reason in record.getMessage() for record in caplog.records)


def test_a_users_own_loss_and_phases_of_few_steps_are_not_recorded(normalised):
    model, split = normalised
    loss = OwnLoss(lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1], reduction="none"))
    with acting() as made:
        unlearn(model, split, "ft", task=loss, compute=Compute("cpu"), guard=None, **OTHERS)
    with acting(fewest=1000) as too_few:
        run(model, split, "ft")
    assert made == too_few == []


def test_the_phases_of_a_users_own_method_are_not_recorded(normalised):
    model, split = normalised
    with acting() as made:
        bench = Workbench(copy.deepcopy(model).eval(), split, device=CPU)
        run_phases(bench, [Differentiating()])
    assert not made


def test_second_derivatives_are_refused_and_plain_passes_have_them(normalised):
    model, split = normalised
    for compile_ in ("auto", "off"):
        with acting():
            bench, batch = begun(model, split, compile=compile_)
            loss = bench.losses(batch).mean()
            if compile_ == "auto":
                with pytest.raises(UsageError, match="Set compile='off'"):
                    loss.backward(create_graph=True)
            else:
                (found,) = torch.autograd.grad(loss, bench.parameters[:1], create_graph=True)
                assert found.requires_grad


def test_when_memory_is_short_recorded_passes_give_theirs_back(normalised):
    model, split = normalised
    with acting() as made:
        bench, batch = begun(model, split)
        first = bench.losses(batch)
        bench.forward.micro_batches.make_room(8, torch.OutOfMemoryError())
        assert bench.forward.micro_batches.size is None  # the same batch may fit now
        with pytest.warns(UserWarning, match="ran out of memory"):
            bench.forward.micro_batches.make_room(8, torch.OutOfMemoryError())
        assert len(made) == 1
        again = bench.losses(batch)
        assert len(made) == 1
        assert not bench.forward.compiling.captures._found
    assert torch.equal(first, again)


def test_weights_that_moved_are_recorded_again(normalised):
    model, split = normalised
    with acting() as made:
        bench, batch = begun(model, split)
        bench.losses(batch)
        for parameter in bench.parameters:
            parameter.data = parameter.data.clone() * 2
        bench.forward.compiling.step(1, of=99)
        doubled = bench.losses(batch)
        assert len(made) == 2
        plain = Workbench(bench.model, split, device=CPU, compile="off").losses(batch)
    assert torch.equal(doubled, plain)


def test_a_torch_that_could_not_go_on_after_a_failure_records_nothing(monkeypatch):
    assert captures.can_record(torch.device("cuda"))
    assert not captures.can_record(CPU)
    monkeypatch.setattr(captures, "GENERATOR", ("clone_state", "gone"))
    assert not captures.can_record(torch.device("cuda"))


def test_hooks_that_come_later_are_heard(normalised):
    model, split = normalised
    seen = []
    with acting() as made:
        bench, batch = begun(model, split)
        bench.losses(batch)
        assert made
        bench.model.layers[0].register_forward_hook(lambda *_: seen.append(1))
        for number in (1, 2):
            bench.forward.compiling.step(number, of=99)
            bench.losses(batch)
    assert seen == [1, 1]
    assert len(made) == 1


def test_a_resumed_run_records_what_the_run_before_it_had_recorded(normalised, tmp_path, monkeypatch):
    from unweave.methods.descent import Descent

    model, split = normalised
    taken = Descent.step
    with acting(fewest=5) as made:
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(Descent, "step", lambda self, number: taken(self, number) if number < 4 else 1 / 0)
            run(model, split, "ft", out=tmp_path / "run", callbacks=[Checkpoints(steps=1)])
        assert made
        made.clear()
        run(model, split, "ft", out=tmp_path / "run", resume=True)
        assert made  # too few steps are left for a new decision


def test_a_shape_that_is_rare_is_not_recorded(normalised):
    model, split = normalised
    with acting(fewest=20) as made:
        bench = Workbench(copy.deepcopy(model).eval(), split, device=CPU)
        batches = bench.batches("remote", size=12)
        for number in range(12):
            bench.forward.compiling.step(number, of=60)
            bench.losses(batches[number])
    assert {len(one.data[1]) for one in made} == {12}  # of 12, 12, 12 and 3


def test_a_pass_that_keeps_the_device_busy_is_not_recorded(normalised, monkeypatch, caplog):
    model, split = normalised
    plain = recording.Recording.plain

    def busy(self):
        self.launching = 0.2
        return plain(self)

    monkeypatch.setattr(recording.Recording, "plain", busy)
    with acting() as made, caplog.at_level(logging.INFO, logger="unweave"):
        run(model, split, "ft")
    assert not made
    assert any("the device is the limit" in record.getMessage() for record in caplog.records)
