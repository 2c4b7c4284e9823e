"""Checkpoints survive what can happen to files: crashes, full disks, damage, other processes, wrong clocks."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import time
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.helpers.tensors import same, weights
from unweave import Checkpoints, Compute, RunError, Split, StopWhen, UsageError, unlearn
from unweave.engine import CheckpointFolder, Workbench, run_phases
from unweave.engine.checkpoints import Checkpoint
from unweave.errors import RunWarning, Stopped
from unweave.methods import find_method
from unweave.runs import unfinished
from unweave.storage import Lock, canonical, sha256

CPU = torch.device("cpu")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}


def run(model, split, checkpoints, *, resume=False, method="two-stage", values=FAST):
    bench = Workbench(copy.deepcopy(model), split, device=CPU)
    chosen = find_method(method)
    history = run_phases(bench, chosen.configure(values).phases(), checkpoints=checkpoints, resume=resume)
    return weights(bench.model), history.rows


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def stopped(model, split, tmp_path, monkeypatch):
    """The folder of a run that died in step 9 of stage 2, and what it would have come to."""
    from unweave.methods.two_stage import Stage2

    whole = run(model, split, None)
    taken = Stage2.step

    def step(self, number):
        if number == 9:
            raise KeyboardInterrupt
        return taken(self, number)

    monkeypatch.setattr(Stage2, "step", step)
    with pytest.raises(KeyboardInterrupt):
        run(model, split, CheckpointFolder(tmp_path, every_seconds=0))
    monkeypatch.setattr(Stage2, "step", taken)
    return tmp_path, whole


def test_phase_starts_the_newest_and_the_one_before_are_kept(stopped):
    folder, _ = stopped
    wanted = ["01-00000000", "01-00000008", "01-00000009"]
    assert names(folder) == sorted(f"{name}.{kind}" for name in wanted for kind in ("json", "safetensors"))


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(model, split, stopped):
    folder, whole = stopped
    newest = folder / "01-00000009.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.warns(RunWarning, match=r"01-00000009.json is damaged and skipped: 01-00000009.safetensors"):
        again = run(model, split, CheckpointFolder(folder, every_seconds=1e9), resume=True)
    assert same(whole[0], again[0])
    assert whole[1] == again[1]


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_a_stage_whose_weights_are_damaged_is_left_out_and_the_run_comes_to_its_end(model, split, tmp_path, kind):
    out = tmp_path / "run"

    def stop():
        return (unfinished(out) / "checkpoints" / "01-00000005.json").exists()

    with pytest.raises(Stopped):
        unlearn(
            model,
            split,
            "two-stage",
            profile="released",
            out=out,
            compute=Compute("cpu"),
            callbacks=[Checkpoints(steps=1), StopWhen(stop)],
            **FAST,
        )
    file = unfinished(out) / "checkpoints" / f"01-00000000.{kind}"
    content = bytearray(file.read_bytes())
    content[-3] ^= 4  # a weight is another one
    file.write_bytes(content)
    with pytest.warns(RunWarning, match=r"01-00000000.json is damaged, so the stage before it is not evaluated"):
        unlearn(model, split, "two-stage", profile="released", out=out, resume=True, compute=Compute("cpu"), **FAST)
    assert "stages" not in json.loads((out / "scores.json").read_text())


def test_an_optimisers_state_comes_back_laid_out_as_its_weights(tmp_path, monkeypatch):
    """As on CUDA: convolutions are channels last there, and a fused optimiser takes state of that layout only."""
    from unweave.engine import workbench
    from unweave.methods import stages
    from unweave.runtime import precision

    cuda = torch.device("cuda")
    monkeypatch.setattr(workbench, "use_channels_last", lambda model, _: precision.use_channels_last(model, cuda))
    optimizers = []

    def fused(name, parameters, *, learning_rate, **_):
        optimizers.append(torch.optim.Adam(parameters, lr=learning_rate, fused=True))
        return optimizers[-1]

    monkeypatch.setattr(stages, "make_optimizer", fused)
    images = torch.randn(60, 3, 8, 8), torch.arange(60) % 3
    split = Split(images, forget=range(6), adjacent=range(6, 24))
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 5, 3), torch.nn.Flatten(), torch.nn.Linear(80, 3)]
    model = torch.nn.Sequential(*layers)
    values = {"stage1_learning_rate": 1e-2, "stage1_remote_batch": 4, "stage1_epochs": 2, "stage2_epochs": 0}
    whole = run(model, split, None, values=values)
    taken = stages.Stage1.step
    with monkeypatch.context() as patch:
        patch.setattr(stages.Stage1, "step", lambda self, number: taken(self, number) if number < 9 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(model, split, CheckpointFolder(tmp_path, every_steps=1), values=values)
    resumed = []

    def noting(self, number):
        resumed.extend(self.optimizer.state.items())  # the run frees it after the stage
        return taken(self, number)

    monkeypatch.setattr(stages.Stage1, "step", noting)
    again = run(model, split, CheckpointFolder(tmp_path), resume=True, values=values)
    for weight, state in resumed:
        assert state["exp_avg"].stride() == state["exp_avg_sq"].stride() == weight.stride()
    assert not all(weight.is_contiguous() for weight, _ in resumed)
    assert same(whole[0], again[0])
    assert whole[1] == again[1]


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 1.0])
def test_a_flipped_bit_is_noticed(stopped, kind, place):
    folder, _ = stopped
    file = folder / f"01-00000009.{kind}"
    content = bytearray(file.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    file.write_bytes(content)
    with pytest.warns(RunWarning, match="01-00000009.json is damaged"):
        found = CheckpointFolder(folder).newest()
    assert found.step == 8


def test_without_a_whole_checkpoint_the_run_begins_again(model, split, stopped):
    folder, whole = stopped
    for file in folder.glob("*.json"):
        file.write_text("{}")
    with pytest.warns(RunWarning) as warned:
        again = run(model, split, CheckpointFolder(folder, every_seconds=1e9), resume=True)
    assert "The run starts again" in str(warned[-1].message)
    assert same(whole[0], again[0])


def test_what_a_resumed_run_skipped_is_cleared_away(model, split, stopped):
    folder, _ = stopped
    (folder / "01-00000009.json").write_text("")
    (folder / "01-00000009.safetensors.partial").write_text("half")
    with pytest.warns(RunWarning):
        run(model, split, CheckpointFolder(folder, every_steps=7, every_seconds=1e9), resume=True)
    kept = {name.split(".")[0] for name in names(folder)}
    assert kept == {"01-00000000", "01-00000008", "01-00000015"}


def test_the_frequency_by_steps_and_by_time(tmp_path, monkeypatch):
    steps = CheckpointFolder(tmp_path, every_seconds=1e9, every_steps=3)
    assert [steps.due() for _ in range(3)] == [False, False, True]
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    timed = CheckpointFolder(tmp_path, every_seconds=10)
    now[0] += 9
    assert not timed.due()
    now[0] += 1
    assert timed.due()
    for wrong in ({"every_seconds": -1.0}, {"every_steps": 0}):
        with pytest.raises(UsageError, match="at least"):
            CheckpointFolder(tmp_path, **wrong)


@pytest.mark.parametrize(("seconds", "expected"), [(None, 200), (60, 60)])
def test_checkpoints_that_take_long_to_write_are_rarer_unless_a_time_is_given(tmp_path, monkeypatch, seconds, expected):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = CheckpointFolder(tmp_path, every_seconds=seconds)
    now[0] += 60
    assert checkpoints.due()

    def slowly(*_):
        now[0] += 10

    monkeypatch.setattr(checkpoints, "_save", slowly)
    checkpoints.save(Checkpoint(0, 1, {}, {}))
    now[0] += expected - 1
    assert not checkpoints.due()
    now[0] += 1
    assert checkpoints.due()


def test_a_clock_that_goes_backwards_changes_nothing(model, split, tmp_path, monkeypatch):
    whole = run(model, split, None)
    clock = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    found = run(model, split, CheckpointFolder(tmp_path, every_seconds=0))
    assert same(whole[0], found[0])
    assert CheckpointFolder(tmp_path).newest().step == 18


def full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_checkpoint_before(model, split, stopped, call, monkeypatch):
    """Writing fails when the data is synced, or the rename does."""
    folder, whole = stopped
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fsync" else Path, call, full)
        with pytest.raises(RunError, match=r"01-00000010 cannot be written.*01-00000009, is intact"):
            run(model, split, CheckpointFolder(folder, every_seconds=0), resume=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert same(run(model, split, CheckpointFolder(folder, every_seconds=1e9), resume=True)[0], whole[0])


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a small disk")
def test_a_disk_that_is_really_full(model, split, tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        (tmp_path / "ballast").write_bytes(bytes(136_000))
        with pytest.raises(RunError, match=r"No space left on device"):
            unlearn(
                model,
                split,
                "two-stage",
                profile="released",
                out=tmp_path / "run",
                compute=Compute("cpu"),
                callbacks=[Checkpoints(steps=1)],
                **FAST,
            )
        kept = tmp_path / "run.unfinished" / "checkpoints"
        assert not list(kept.glob("*.partial"))
        (tmp_path / "ballast").unlink()
        resumed = unlearn(
            model,
            split,
            "two-stage",
            profile="released",
            out=tmp_path / "run",
            resume=True,
            compute=Compute("cpu"),
            **FAST,
        )
        assert same(
            weights(resumed.model),
            weights(unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"), **FAST).model),
        )
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=False)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a disk")
def test_a_disk_that_may_not_be_written(model, split, tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        with pytest.raises(RunError, match=r"cannot be written.*Read-only file system"):
            unlearn(model, split, "two-stage", profile="released", out=tmp_path / "run", compute=Compute("cpu"), **FAST)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=False)


def test_one_process_at_a_time(model, split, tmp_path):
    work = tmp_path / "run.unfinished"
    work.mkdir()
    lock = Lock(work / "lock")  # an open file of its own, as another process has
    for _ in range(2):
        with pytest.raises(UsageError, match="Another process is working in"):
            unlearn(
                model,
                split,
                "two-stage",
                profile="released",
                out=tmp_path / "run",
                resume=True,
                compute=Compute("cpu"),
                **FAST,
            )
    assert work.exists()
    lock.release()
    result = unlearn(
        model, split, "two-stage", profile="released", out=tmp_path / "run", resume=True, compute=Compute("cpu"), **FAST
    )
    assert same(
        weights(result.model),
        weights(unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"), **FAST).model),
    )
    assert names(tmp_path) == ["run"]
    assert "lock" not in names(tmp_path / "run")


def test_a_data_loader_that_outlives_its_run_does_not_keep_the_lock(tmp_path):
    lock = Lock(tmp_path / "lock")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where there are threads
        child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        with pytest.raises(UsageError, match="Another process"):
            Lock(tmp_path / "lock")
        lock._file.close()  # as when the process is killed
        deadline = time.monotonic() + 5
        while True:
            try:
                Lock(tmp_path / "lock").release()
                break
            except UsageError:  # the child has not come to let go yet
                assert time.monotonic() < deadline
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_last_rename_that_fails_keeps_the_results(model, split, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(RunError, match="results cannot be written"):
            unlearn(model, split, method="ga", out=tmp_path / "run", compute=Compute("cpu"))
    assert "model.safetensors" in names(tmp_path / "run.unfinished")
    unlearn(model, split, method="ga", out=tmp_path / "run", resume=True, compute=Compute("cpu"))
    assert names(tmp_path) == ["run"]


@pytest.mark.parametrize("name", ["run.json", "model.safetensors", "scores.json"])
def test_results_are_written_whole_or_not_at_all(model, split, tmp_path, monkeypatch, name):
    import unweave.runs.run_folder
    import unweave.runs.saved_model

    taken = unweave.runs.run_folder.write_whole

    def write(path, content, **more):
        if path.name == name:
            full()
        taken(path, content, **more)

    for module in (unweave.runs.run_folder, unweave.runs.saved_model):
        monkeypatch.setattr(module, "write_whole", write)
    with pytest.raises(RunError, match="cannot be written"):
        unlearn(model, split, method="ga", out=tmp_path / "run", compute=Compute("cpu"))
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob("**/*.partial"))


# Fuzz: whatever a checkpoint's JSON says, it is used, skipped, or refused in one sentence.

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(["phase", "step", "history", "cost", "phases", "weights_bytes", "weights_sha256", "format"]),
    value=VALUES,
    signed=st.booleans(),
)
@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
def test_an_odd_checkpoint_never_ends_in_a_traceback(model, split, stopped, tmp_path_factory, key, value, signed):
    folder = tmp_path_factory.mktemp("fuzz") / "checkpoints"
    shutil.copytree(stopped[0], folder)
    file = folder / "01-00000009.json"
    content = json.loads(file.read_text()) | {key: value}
    if signed:
        content.pop("sha256")
        content["sha256"] = sha256(canonical(content))
    file.write_text(json.dumps(content))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unweave.methods.two_stage.Stage2.step", lambda self, number: {})
            run(model, split, CheckpointFolder(folder, every_seconds=1e9), resume=True)
    except (UsageError, RunError) as error:
        assert "checkpoint" in str(error)  # noqa: PT017


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.sampled_from([b"[" * 10**5, b'{"a":' * 10**5, b"NaN", b"9" * 10**4]))
def test_bytes_that_are_no_checkpoint_are_skipped(stopped, content):
    file = stopped[0] / "01-00000009.json"
    file.write_bytes(content)
    with pytest.warns(RunWarning, match="is damaged and skipped"):
        assert CheckpointFolder(stopped[0]).newest().step == 8
