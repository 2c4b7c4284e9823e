"""The same on a GPU. Skipped where there is none."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.tensors import same, weights
from unweave import Checkpoints, Compute, evaluate, unlearn
from unweave.engine import Workbench
from unweave.methods import find_method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("name", ON_ANYTHING)
def test_every_method_runs_on_cuda_and_gives_back_the_model_where_it_was(name, digits):
    benchmark, task, original = digits
    short = {key: 1 for key in ON_ANYTHING[name].configure().to_dict() if key.endswith("epochs")}
    settings = {**benchmark.settings_for(find_method(name), None), **short}
    result = unlearn_with(
        original, task.train, method=name, initial=lambda: copy.deepcopy(original), compute=Compute("cuda"), **settings
    )
    assert next(result.model.parameters()).device.type == "cpu"
    assert next(original.parameters()).device.type == "cpu"
    assert (result.cost.peak_memory_bytes or 0) > 0


def test_cuda_follows_the_cpu_at_first(digits):
    """The same batches and nearly the same losses: rounding differs, the algorithm does not."""
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 1}
    cpu, cuda = (
        unlearn(
            original, task.train, "two-stage", compute=Compute(device, precision="float32"), **settings
        ).history.rows
        for device in ("cpu", "cuda")
    )
    for first, second in zip(cpu[:5], cuda[:5], strict=True):
        assert first["forget_loss"] == pytest.approx(second["forget_loss"], rel=3e-2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_stage_forgets_and_keeps_on_cuda(precision, digits):
    benchmark, task, original = digits
    settings = benchmark.settings_for(find_method("two-stage"), None)
    result = unlearn(original, task.train, "two-stage", compute=Compute("cuda", precision=precision), **settings)
    scores = evaluate(result.model, task.train, task.test, compute=Compute("cuda"))
    assert scores["train"]["forget"]["accuracy"] <= 0.05
    assert scores["train"]["adjacent"]["accuracy"] >= 0.95
    assert scores["train"]["remote"]["accuracy"] >= 0.97


def test_a_seed_repeats_itself_on_cuda_with_deterministic_algorithms(digits, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 2}
    torch.use_deterministic_algorithms(True)
    try:
        runs = [unlearn(original, task.train, "two-stage", compute=Compute("cuda"), **settings) for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert same(weights(runs[0].model), weights(runs[1].model))


@pytest.mark.parametrize("stage", ["Stage1", "Stage2"])
def test_a_stopped_run_resumes_exactly_on_cuda_with_deterministic_algorithms(stage, digits, tmp_path, monkeypatch):
    from unweave.methods import two_stage

    stopped = getattr(two_stage, stage)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 2}
    # What is compiled when depends on the clock, so it is not compiled.
    arguments = {**settings, "guard": None, "compute": Compute("cuda", compile="off")}
    torch.use_deterministic_algorithms(True)
    try:
        whole = unlearn(original, task.train, "two-stage", **arguments)
        taken = stopped.step
        with monkeypatch.context() as patch:
            patch.setattr(stopped, "step", lambda self, number: taken(self, number) if number < 5 else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                unlearn(
                    original,
                    task.train,
                    "two-stage",
                    out=tmp_path / "run",
                    callbacks=[Checkpoints(steps=1)],
                    **arguments,
                )
        resumed = unlearn(original, task.train, "two-stage", out=tmp_path / "run", resume=True, **arguments)
    finally:
        torch.use_deterministic_algorithms(False)
    assert same(weights(whole.model), weights(resumed.model))
    assert whole.history.rows == resumed.history.rows


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_step_waits_for_the_gpu(digits):
    benchmark, task, original = digits
    chosen = find_method("two-stage")
    settings = chosen.configure(benchmark.settings_for(chosen, None))
    bench = Workbench(copy.deepcopy(original).to("cuda:0"), task.train, device=torch.device("cuda", 0), compile="off")
    for phase in settings.phases():
        phase.prepare(bench)
        phase.begin()
        phase.step(0)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for number in range(1, 2 * len(phase.remote)):  # past the end of a pass
                phase.step(number)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_convolutional_model_comes_back_in_its_own_layout(digits):
    _, task, original = digits
    result = unlearn(original, task.train, method="ga", epochs=1, compute=Compute("cuda"))
    assert all(tensor.is_contiguous() for tensor in result.model.state_dict().values())


def test_pieces_change_nothing_on_cuda(digits):
    _, task, _ = digits
    wide = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 4096),
        torch.nn.Tanh(),
        torch.nn.Linear(4096, 4096),
        torch.nn.Tanh(),
        torch.nn.Linear(4096, 3),
    )
    settings = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 1024, "normalisation": "eval"}
    whole, cut = (
        unlearn(
            wide, task.train, method="ft", guard=None, compute=Compute("cuda", precision="float32"), **more, **settings
        )
        for more in ({}, {"micro_batch": 100})
    )
    for name, tensor in whole.model.state_dict().items():
        assert torch.allclose(tensor, cut.model.state_dict()[name], atol=1e-4), name
