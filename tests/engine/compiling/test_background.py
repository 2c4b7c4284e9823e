"""Code is compiled in another process while steps run uncompiled; a resumed run switches at the same step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings

import pytest
import torch
from torch import nn

from tests.helpers.acting import FREE, act, altered, forget_code
from tests.helpers.tensors import same, weights
from unweave import Checkpoints, Compute, OwnLoss, Split, Stopped, unlearn
from unweave.engine import Callback
from unweave.engine.compiling import background, forwards
from unweave.engine.compiling.background import PROGRAM, Background, can_compile_beside
from unweave.errors import RunError, RunWarning

AUTO = Compute("cpu", compile="auto")
PLAIN = Compute("cpu", compile="off")
LONG = {"learning_rate": 1e-2, "epochs": 4, "batch_size": 13, "guard": None}  # 16 steps
CPU = torch.device("cpu")
READY, END = 6, 9


class Machine(Callback):
    """Lets code be ready after a step, and ends the run after another, as asked or by an error."""

    def __init__(self, ready, end=None, *, rudely=False):
        self.ready, self.end_at, self.rudely, self.leave = ready, end, rudely, False

    def begin(self, running):
        self.compiling = running.bench.forward.compiling
        self.used = []

    def step(self, phase, number):
        self.used.append(bool(self.compiling.known))
        if number == self.ready:
            for variant in self.compiling.background.ordered:
                self.compiling.marks.put(variant)
        if number == self.end_at and self.rudely:
            raise RunError("killed")
        self.leave = number == self.end_at
        return {}

    def wants_to_stop(self):
        return self.leave


@pytest.fixture
def acted(monkeypatch, tmp_path):
    """A machine whose other process does nothing by itself."""
    act(monkeypatch, tmp_path / "cache", backend=altered)
    monkeypatch.setattr(Background, "_start", lambda self: None)
    monkeypatch.setattr(Background, "_send", lambda self, content: None)
    return tmp_path


@pytest.mark.parametrize("rudely", [False, True])
def test_a_resumed_run_uses_compiled_code_from_the_same_step_on(rudely, acted, model, split):
    how = {"method": "ft", "compute": AUTO, **LONG}
    whole = unlearn(model, split, callbacks=[Machine(READY)], **how)
    plain = unlearn(model, split, method="ft", compute=PLAIN, **LONG)
    assert not same(weights(whole.model), weights(plain.model)), "the switch leaves no trace"

    forget_code(acted / "cache")
    rarely, out = Checkpoints(seconds=1e9, steps=4), acted / "run"
    with pytest.raises((Stopped, RunError)):
        unlearn(model, split, out=out, callbacks=[Machine(READY, END, rudely=rudely), rarely], **how)
    forget_code(acted / "cache")  # so the resumed run compiles it where it needs it
    machine = Machine(ready=None)
    resumed = unlearn(model, split, out=out, resume=True, callbacks=[machine, rarely], **how)
    assert all(machine.used)
    assert same(weights(whole.model), weights(resumed.model))
    assert whole.history.rows == resumed.history.rows


def test_a_checkpoint_follows_the_switch(acted, model, split):
    seen = []

    class Look(Callback):
        def begin(self, running):
            self.folder = acted / "run.unfinished"

        def step(self, phase, number):
            seen.append(sorted(file.stem for file in acted.glob("*/**/*.safetensors") if file.stem[:2] == "00"))
            return {}

    rarely = Checkpoints(seconds=1e9)
    unlearn(model, split, "ft", compute=AUTO, out=acted / "run", callbacks=[Machine(READY), rarely, Look()], **LONG)
    first = next(number for number, names in enumerate(seen) if names)
    assert (first, seen[first]) == (READY + 2, [f"00-{READY + 2:08d}"])


def test_another_process_compiles_and_ends_with_the_run(monkeypatch, tmp_path, model, split):
    act(monkeypatch, tmp_path)
    seen = []

    class Wait(Callback):
        def begin(self, running):
            self.compiling = running.bench.forward.compiling

        def step(self, phase, number):
            behind = self.compiling.background
            until = time.monotonic() + 120
            while number == READY and behind.ordered and time.monotonic() < until:
                time.sleep(0.05)
                behind.look()
            seen.append((behind._process, bool(self.compiling.known)))
            return {}

    plain = unlearn(model, split, "ft", compute=PLAIN, **LONG)
    found = unlearn(model, split, "ft", compute=AUTO, callbacks=[Wait()], **LONG)
    assert not seen[READY][1]
    assert seen[-1][1]
    process = seen[READY][0]
    assert process.returncode is not None, "the process outlived the run"
    assert not list(tmp_path.rglob("*.lock"))
    assert same(weights(found.model), weights(plain.model))


def test_a_model_with_normalisation_runs_folded_until_its_code_is_ready(acted, monkeypatch):
    seconds = dict(FREE)
    monkeypatch.setattr(forwards, "WARM_UP_SECONDS", seconds)
    monkeypatch.setattr(forwards, "fold_only", altered)
    data = torch.randn(60, 3, 4, 4), torch.arange(60) % 3
    split = Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))

    class Slow(Machine):
        def step(self, phase, number):
            if number == READY:
                seconds["in the background"] = 1e9
            self.folded = bool(self.compiling._folded)
            return super().step(phase, number)

    found, out = [], acted / "run"
    for end in (None, END):
        forget_code(acted / "cache")
        seconds["in the background"] = 0.0
        how = {"method": "ft", "compute": AUTO, "normalisation": "eval", **LONG, "out": out if end else None}
        machine = Slow(None, end)
        try:
            found.append(unlearn(network, split, callbacks=[machine, Checkpoints(seconds=1e9)], **how))
        except Stopped:
            found.append(unlearn(network, split, resume=True, callbacks=[machine, Checkpoints(seconds=1e9)], **how))
        assert machine.folded
        assert not any(machine.used)
    plain = unlearn(network, split, "ft", compute=PLAIN, normalisation="eval", **LONG)
    assert not same(weights(found[0].model), weights(plain.model)), "folding leaves no trace"
    assert same(weights(found[0].model), weights(found[1].model))
    assert found[0].history.rows == found[1].history.rows


def unpicklable():
    class Local(nn.Linear):
        pass

    return Local(5, 3)


@pytest.mark.parametrize("case", ["a local class", "a loss of one's own", "the process dies", "no process"])
def test_a_run_goes_on_as_without_a_background_when_that_fails(case, monkeypatch, tmp_path, split):
    act(monkeypatch, tmp_path)
    model, task = nn.Linear(5, 3), None
    if case == "a local class":
        model = unpicklable()
    elif case == "a loss of one's own":
        task = OwnLoss(lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none"))
    elif case == "the process dies":
        program = tmp_path / "dies.py"
        program.write_text("raise SystemExit('no compiler here')")
        monkeypatch.setattr(background, "PROGRAM", program)
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    behind = []

    class Look(Callback):
        def begin(self, running):
            behind.append(running.bench.forward.compiling.background)

        def step(self, phase, number):
            if case == "the process dies" and behind[0]._process is not None:
                behind[0]._process.wait(timeout=60)
            return {}

    settings = {**LONG, "task": task, "callbacks": [Look()]}
    plain = unlearn(model, split, "ft", compute=PLAIN, **settings)
    behind.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        found = unlearn(model, split, "ft", compute=AUTO, **settings)
    assert same(weights(found.model), weights(plain.model))
    assert not behind[0].allowed
    assert behind[0]._process is None
    assert not list(tmp_path.rglob("*.lock"))


def test_nothing_is_ordered_that_would_be_ready_too_late(monkeypatch, tmp_path, model, split):
    act(monkeypatch, tmp_path, seconds={**FREE, "in the background": 1.0})
    monkeypatch.setattr(Background, "_start", lambda self: pytest.fail("a process was started"))
    unlearn(model, split, "ft", compute=AUTO, **LONG)


def test_the_process_ends_when_its_input_does():
    process = subprocess.Popen([sys.executable, "-P", str(PROGRAM)], stdin=subprocess.PIPE)
    process.stdin.close()
    assert process.wait(timeout=120) == 0


def test_the_process_starts_ahead_where_later_phases_have_much_to_do(monkeypatch, tmp_path, model, split):
    act(monkeypatch, tmp_path, seconds={**FREE, "in the background": 1e9})
    started = []
    monkeypatch.setattr(Background, "_start", lambda self: started.append(1))
    how = {"stage1_remote_batch": 20, "stage2_remote_batch": 20, "stage2_adjacent_batch": 4, "guard": None}
    how["profile"] = "released"  # says how long its second stage is
    unlearn(model, split, "two-stage", compute=AUTO, **how)
    assert not started
    monkeypatch.setattr(background, "MANY", 6 * 3 * 2 * 20)  # epochs × steps × batches × samples
    unlearn(model, split, "two-stage", compute=AUTO, **how)
    assert len(started) == 1
    monkeypatch.setattr(background, "MANY", 6 * 3 * 2 * 20 + 1)
    unlearn(model, split, "two-stage", compute=AUTO, **how)
    assert len(started) == 1


def test_few_cores_and_the_cpu_compile_nothing_in_the_background(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(16), raising=False)
    assert can_compile_beside(torch.device("cuda", 0))
    assert not can_compile_beside(CPU)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(3), raising=False)
    assert not can_compile_beside(torch.device("cuda", 0))
