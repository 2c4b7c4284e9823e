"""Compiled passes equal plain ones, are made only where they pay, and are shared among processes."""

from __future__ import annotations

import gc
import json
import warnings
import weakref

import pytest
import torch
from torch import nn

from tests.helpers.tensors import same, weights
from tests.helpers.tiny import Scaled
from unweave import Compute, Split, unlearn
from unweave.engine import Workbench
from unweave.engine.compiling import Forwards
from unweave.engine.compiling import forwards as compiled
from unweave.engine.compiling.variants import Variant
from unweave.errors import RunWarning
from unweave.tasks import logits

CPU = torch.device("cpu")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}


def test_compiled_and_plain_runs_are_equal_and_a_copy_reuses_the_code(data):
    if " " in torch.__file__:
        pytest.skip("torch's own compiler calls do not quote paths, and this one has a space")
    values, labels = data
    split = Split({"values": values, "labels": labels}, forget=range(12), adjacent=range(12, 24), remote=range(24, 60))
    # Three shapes are compiled: 24 samples of stage 1, 12 of stage 2, and 12 without gradients. Each takes seconds.
    sizes = ("stage1_remote_batch", "stage1_forget_batch", "stage2_adjacent_batch", "stage2_remote_batch")
    settings = FAST | dict.fromkeys([*sizes, "stage2_forget_batch"], 12) | {"guard": None}
    model = Scaled()
    plain = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="off"), **settings)
    before = set(compiled._WARM)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        fast = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="on"), **settings)
    assert before < compiled._WARM
    assert list(fast.model.state_dict()) == list(model.state_dict())
    for key, tensor in plain.model.state_dict().items():
        assert torch.allclose(fast.model.state_dict()[key], tensor, atol=1e-5)
    known = set(compiled._WARM)
    unlearn(model, split, "two-stage", profile="released", seed=1, compute=Compute("cpu", compile="auto"), **settings)
    assert known == compiled._WARM


def test_a_padded_batch_has_the_losses_and_the_gradient_of_its_own_samples(data):
    if " " in torch.__file__:
        pytest.skip("torch's own compiler calls do not quote paths, and this one has a space")
    values, labels = data
    split = Split({"values": values, "labels": labels}, forget=range(15), adjacent=range(15, 31), remote=range(31, 60))
    model, found = Scaled(), []
    for way in ("off", "on"):
        bench = Workbench(model, split, device=CPU, compile=way)
        bench.mode("eval")
        for _ in range(3):
            bench.gradient([bench.losses(bench.batches("adjacent", size=16)[0]).mean()])
        losses = bench.losses(bench.batches("forget", size=15)[0])
        found.append([losses.detach(), *bench.gradient([losses.square().mean()])])
        assert {known.samples for known in bench.forward.compiling._known} == ({16} if way == "on" else set())
    for plain, filled in zip(*found, strict=True):
        assert torch.allclose(plain, filled, atol=1e-6)


def test_a_run_goes_uncompiled_when_the_compiler_fails(model, split, monkeypatch):
    def broken(*_, **__):
        def call(*_, **__):
            raise RuntimeError("no compiler here")

        return call

    plain = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="off"), **FAST)
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(RunWarning, match="no compiler here"):
        found = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="on"), **FAST)
    assert same(weights(plain.model), weights(found.model))


def variant(samples, *, training=False):
    return Variant("model", training, True, False, (((samples, 5), "torch.float32"), ((samples,), "torch.int64")))


def looking_back(forwards, **calls):
    """Set the stage after ten steps of 1 ms a sample: the calls of each variant so far."""
    forwards._steps, forwards._left, forwards._seconds = 10, 1000, 1e-3
    forwards._layers["model"] = 16
    for name, count in calls.items():
        forwards._calls[variant(int(name.strip("_")))] = count
    return forwards


def test_auto_compiles_only_what_saves_more_time_than_it_takes(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    forwards = looking_back(Forwards("auto", CPU), _8=10, _7=1)
    forwards._choose({})
    assert forwards.chosen == [variant(8)]  # 1000 × 8 × 3 × 1 ms × 0.35 = 8.4 s > 8 s
    assert forwards.has_switched
    forwards.marks.release_all()
    later = looking_back(Forwards("auto", CPU), _8=10)
    later._left = 900
    later._choose({})
    assert later.chosen == []
    later.marks.put(variant(8))  # code that another process compiled loads in seconds
    later._choose({})
    assert later.chosen == [variant(8)]


def test_a_second_process_waits_for_the_one_that_compiles(model, split, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    often = variant(8)
    first, second = (looking_back(Forwards("auto", CPU), _8=10) for _ in range(2))  # each with its own locks
    for forwards in (first, second):
        forwards._choose({})
    assert first.chosen == [often]
    assert second.chosen == []
    first._run_compiled(lambda model, data: model(data[0]), model, split.samples.read(torch.arange(8)), often)
    second._left = 200  # compiled code pays much sooner
    second._choose({})
    assert second.chosen == [often]
    assert not list(tmp_path.rglob("*.lock"))


def test_what_a_later_phase_needs_is_ordered_where_it_will_be_ready_in_time(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    forwards = looking_back(Forwards("auto", CPU), _8=10)
    forwards._left, forwards._step_seconds = 100, 0.03  # 3 s are left of this phase, 16 layers take 6.4 s
    forwards.background.allowed = True
    forwards._choose({64: 100, 32: 10})  # 19 s and 1 s
    assert forwards._orders == {variant(8): [variant(64)]}
    forwards.marks.put(variant(64))
    forwards._choose({64: 100, 32: 10})
    assert forwards._orders == {}
    assert forwards.chosen == []


def test_a_batch_is_padded_to_a_slightly_larger_compiled_one():
    forwards = Forwards("on", CPU)
    forwards._known = {variant(128), variant(512), variant(512, training=True)}
    assert forwards._to_fill(variant(500), 500) == 512
    assert forwards._to_fill(variant(512), 512) is None
    assert forwards._to_fill(variant(300), 300) is None, "too far from any"
    assert forwards._to_fill(variant(500, training=True), 500) is None, "a sample would depend on the padding"


@pytest.mark.parametrize("mode", ["on", "auto"])
def test_a_resumed_run_compiles_at_once_what_the_run_before_it_had_compiled(mode, monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    monkeypatch.setattr(compiled, "_WARM", set())
    model, batch = nn.Linear(5, 3), (torch.zeros(8, 5), torch.zeros(8))
    before = Forwards("on", CPU)
    for _ in range(2):  # a shape that occurs once is not compiled
        before.run(logits, model, batch)
    before.run(logits, model, (torch.zeros(6, 5), torch.zeros(6)))
    state = json.loads(json.dumps(before.state()))
    monkeypatch.setattr(compiled, "_WARM", set())
    after = Forwards(mode, CPU)
    monkeypatch.setattr(after, "_finds_nothing", lambda: False)
    after.load_state(state)
    after.run(logits, model, batch)
    assert after._known == before._known
    after.run(logits, model, (torch.zeros(6, 5), torch.zeros(6)))
    assert {known.samples for known in after._known} == ({8, 6} if mode == "on" else {8})


def test_auto_on_the_cpu_looks_at_batches_only_after_something_was_compiled(monkeypatch):
    forwards, model, batch = Forwards("auto", CPU), nn.Linear(5, 3), (torch.zeros(2, 5), torch.zeros(2))
    monkeypatch.setattr(compiled, "_WARM", set())
    forwards.run(logits, model, batch)
    assert not forwards._calls
    monkeypatch.setattr(compiled, "_WARM", {variant(8)})
    forwards.run(logits, model, batch)
    assert len(forwards._calls) == 1


def test_a_model_that_ran_uncompiled_is_released():
    forwards, model = Forwards("auto", CPU), nn.Linear(5, 3)
    gone = weakref.ref(model)
    forwards.run(logits, model, (torch.zeros(2, 5), torch.zeros(2)))
    del model
    gc.collect()
    assert gone() is None
