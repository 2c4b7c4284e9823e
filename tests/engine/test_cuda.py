"""The same on a GPU. Skipped where there is none."""

from __future__ import annotations

import copy
import warnings
from contextlib import contextmanager

import pytest
import torch

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.tensors import same, weights
from unweave import Callback, Checkpoints, Compute, Split, evaluate, unlearn
from unweave.engine import Workbench
from unweave.engine.compiling import captures, recording
from unweave.errors import RunWarning
from unweave.methods import find_method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("name", ON_ANYTHING)
def test_every_method_runs_on_cuda_and_gives_back_the_model_where_it_was(name, digits):
    benchmark, task, original = digits
    short = {key: 1 for key in ON_ANYTHING[name].configure().to_dict() if key.endswith("epochs")}
    settings = {**benchmark.settings_for(find_method(name), None), **short}
    result = unlearn_with(
        original,
        task.train,
        method=name,
        initial=lambda: copy.deepcopy(original),
        compute=Compute("cuda"),
        guard=None,  # some methods need other settings here than the benchmark's
        **settings,
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
            original,
            task.train,
            "two-stage",
            profile="released",
            compute=Compute(device, precision="float32"),
            **settings,
        ).history.rows
        for device in ("cpu", "cuda")
    )
    for first, second in zip(cpu[:5], cuda[:5], strict=True):
        assert first["forget_loss"] == pytest.approx(second["forget_loss"], rel=3e-2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_stage_forgets_and_keeps_on_cuda(precision, digits):
    benchmark, task, original = digits
    settings = benchmark.settings_for(find_method("two-stage"), None)
    result = unlearn(
        original, task.train, "two-stage", profile="released", compute=Compute("cuda", precision=precision), **settings
    )
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
        runs = [
            unlearn(original, task.train, "two-stage", profile="released", compute=Compute("cuda"), **settings)
            for _ in range(2)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    assert same(weights(runs[0].model), weights(runs[1].model))


@pytest.mark.parametrize("stage", ["Stage1", "Stage2"])
def test_a_stopped_run_resumes_exactly_on_cuda_with_deterministic_algorithms(stage, digits, tmp_path, monkeypatch):
    from unweave.methods import stages

    stopped = getattr(stages, stage)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 2}
    # What is compiled when depends on the clock, so it is not compiled.
    arguments = {**settings, "guard": None, "compute": Compute("cuda", compile="off")}
    torch.use_deterministic_algorithms(True)
    try:
        whole = unlearn(original, task.train, "two-stage", profile="released", **arguments)
        taken = stopped.step
        with monkeypatch.context() as patch:
            patch.setattr(stopped, "step", lambda self, number: taken(self, number) if number < 5 else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                unlearn(
                    original,
                    task.train,
                    "two-stage",
                    profile="released",
                    out=tmp_path / "run",
                    callbacks=[Checkpoints(steps=1)],
                    **arguments,
                )
        resumed = unlearn(
            original, task.train, "two-stage", profile="released", out=tmp_path / "run", resume=True, **arguments
        )
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
            wide,
            task.train,
            method="ft",
            guard=None,
            compute=Compute("cuda", precision="float32", micro_batch=size),
            **settings,
        )
        for size in (None, 100)
    )
    for name, tensor in whole.model.state_dict().items():
        assert torch.allclose(tensor, cut.model.state_dict()[name], atol=1e-4), name


@contextmanager
def deterministic(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture
def recorded(monkeypatch):
    """The passes that are recorded, of phases of any length."""
    made = []
    record = recording.Recording.record

    def counted(self):
        record(self)
        made.append(self)

    monkeypatch.setattr(captures, "FEWEST", 1)
    monkeypatch.setattr(recording.Recording, "record", counted)
    return made


@pytest.mark.parametrize("name", ON_ANYTHING)
def test_every_method_gives_the_same_with_passes_recorded_on_cuda(name, digits, recorded, monkeypatch):
    benchmark, task, original = digits
    short = {key: 1 for key in ON_ANYTHING[name].configure().to_dict() if key.endswith("epochs")}
    settings = {**benchmark.settings_for(find_method(name), None), **short}
    with deterministic(monkeypatch):
        plain, repeated = (
            unlearn_with(
                original,
                task.train,
                method=name,
                initial=lambda: copy.deepcopy(original),
                compute=Compute("cuda", precision="float32", compile=compile_),
                guard=None,
                **settings,
            )
            for compile_ in ("off", "auto")
        )
    assert bool(recorded) == bool(plain.history.rows)
    for one, other in zip(plain.history.rows, repeated.history.rows, strict=False):
        for key in ("loss", "forget_loss", "remote_loss"):
            if key in one:
                assert one[key] == pytest.approx(other[key], rel=1e-2, abs=1e-3), key


def test_recorded_passes_draw_the_random_numbers_of_plain_ones(digits, recorded, monkeypatch):
    _, task, _ = digits
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 3)
    )
    settings = {"epochs": 1, "learning_rate": 1e-2, "batch_size": 32, "guard": None, "normalisation": "train"}
    with deterministic(monkeypatch):
        plain, repeated = (
            unlearn(model, task.train, "ft", compute=Compute("cuda", precision="float32", compile=compile_), **settings)
            for compile_ in ("off", "auto")
        )
    assert recorded
    for one, other in zip(weights(plain.model), weights(repeated.model), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


class Waiting(torch.nn.Module):
    """A network that asks the device for a number, which a recorded pass cannot do, and has dropout."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 3)
        )

    def forward(self, images):
        return self.layers(images) * (1.0 if images.sum().item() > 0 else 0.5)


def test_a_model_that_waits_for_the_device_runs_as_it_is_written(digits, recorded, monkeypatch):
    _, task, _ = digits
    torch.manual_seed(0)
    settings = {"epochs": 1, "learning_rate": 1e-2, "batch_size": 32, "guard": None, "normalisation": "train"}
    model = Waiting()
    with deterministic(monkeypatch):
        plain, tried = (
            unlearn(model, task.train, "ft", compute=Compute("cuda", precision="float32", compile=compile_), **settings)
            for compile_ in ("off", "auto")
        )
        assert not recorded
        assert same(weights(plain.model), weights(tried.model))
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        torch.cuda.empty_cache()  # gives back what the failed recording took
        assert torch.cuda.memory_reserved() < 2 * torch.cuda.memory_allocated() + 2**27
        # The device is as good as before.
        willing = torch.nn.Sequential(*list(model.layers))
        again = unlearn(willing, task.train, "ft", compute=Compute("cuda", precision="float32"), **settings)
    assert recorded
    assert again.history.rows


def test_a_stopped_run_with_recorded_passes_goes_on_exactly(digits, recorded, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage2

    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage1_epochs": 1, "stage2_epochs": 2}
    arguments = {**settings, "guard": None, "compute": Compute("cuda")}
    taken = Stage2.step
    with deterministic(monkeypatch):
        whole = unlearn(original, task.train, "two-stage", profile="released", **arguments)
        stopping = {"out": tmp_path / "run", "callbacks": [Checkpoints(steps=1)]}
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(Stage2, "step", lambda self, number: taken(self, number) if number < 5 else 1 / 0)
            unlearn(original, task.train, "two-stage", profile="released", **stopping, **arguments)
        resumed = unlearn(
            original, task.train, "two-stage", profile="released", out=tmp_path / "run", resume=True, **arguments
        )
    assert recorded
    assert same(weights(whole.model), weights(resumed.model))


def test_recorded_passes_need_no_more_memory_after_a_thousand_steps(digits, recorded):
    class Memory(Callback):
        def step(self, phase, number):
            return {"held": torch.cuda.memory_reserved(), "used": torch.cuda.memory_allocated()}

    _, task, original = digits
    epochs = 1 + 1000 // (len(task.train.rows("adjacent", "remote")) // 16)
    settings = {"learning_rate": 1e-4, "batch_size": 16, "epochs": epochs, "guard": None}
    result = unlearn(original, task.train, "ft", compute=Compute("cuda"), callbacks=[Memory()], **settings)
    rows = result.history.rows
    assert recorded
    assert len(rows) >= 1000
    assert rows[-1]["held"] <= rows[100]["held"]
    assert rows[-1]["used"] <= 1.01 * rows[100]["used"]


def test_a_limit_is_kept_and_changes_nothing(monkeypatch):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(3),
    )
    model(torch.zeros(1, 3, 32, 32))
    data = torch.randn(1536, 3, 32, 32), torch.arange(1536) % 3
    split = Split(data, forget=range(256), adjacent=range(256, 768))
    settings = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 512, "guard": None, "normalisation": "eval"}

    def run(limit):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        compute = Compute("cuda", precision="float32", compile="off", max_memory=limit)
        found = unlearn(model, split, "ft", compute=compute, **settings)
        return found, torch.cuda.max_memory_reserved()

    with deterministic(monkeypatch):
        whole, taken = run(None)
        for share in (0.75, 0.5, 0.35):
            limit = int(share * taken)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RunWarning)
                cut, held = run(limit)
            assert held <= limit
            for one, other in zip(weights(whole.model), weights(cut.model), strict=True):
                assert torch.allclose(one, other, atol=1e-4)
