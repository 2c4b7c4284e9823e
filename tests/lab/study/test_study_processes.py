"""A study in processes that are killed, interrupted, and that share a folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest
import torch

from tests.helpers.studies import table
from unweave.engine import Compute
from unweave.lab.study import started, still_running

# One thread a process: two processes share two cores here, and every run must give the same bits.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
# Retraining for one epoch and little unlearning, so that most of the time goes into the test's subject.
GRID = ["--grid", "epochs=1", "--grid", "stage1_epochs=1", "--grid", "stage2_epochs=2"]
QUICK = ["--device", "cpu", "--methods", "retrain,two-stage", "--seeds", "2", *GRID]
CELLS = 4


def start(folder, *words, cells=QUICK):
    command = [sys.executable, "-m", "unweave", "study", "digits", *words, *cells, "--out", "s"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Background jobs of a shell and their children ignore Ctrl-C, unless they reset the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, cwd=folder, env=ALONE, **pipes)


def run(folder, *words, cells=QUICK):
    process = start(folder, *words, cells=cells)
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def until(condition, *, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def done(folder):
    return len(list(folder.glob("s/cells/*/scores.json")))


def in_work(folder, since):
    """Return how many cells started after a time and are unfinished."""
    notes = []
    for path in folder.glob("s/locks/cell.*.begun"):
        with contextlib.suppress(FileNotFoundError):  # it came to its end just now
            notes.append(path.read_text())
    return sum(note.endswith("\n") and float(note) >= since for note in notes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that ran without interruption."""
    folder = tmp_path_factory.mktemp("study")
    code, _, errors = run(folder)
    assert code == 0, errors
    assert f"[{CELLS}/{CELLS}]" in errors
    return folder / "s"


@pytest.fixture
def trained(finished, tmp_path):
    """The folder of a study with originals only."""
    (tmp_path / "s" / "models").mkdir(parents=True)
    shutil.copy(finished / "study.json", tmp_path / "s")
    for path in finished.glob("models/*"):
        shutil.copy(path, tmp_path / "s" / "models")
    return tmp_path


def test_where_the_numbers_come_from_is_on_record(finished):
    (first,) = json.loads((finished / "provenance.json").read_text())["runs"]
    assert first["command"].startswith("unweave study digits --device cpu --methods retrain,two-stage")
    assert {"commit", "date", "hardware", "versions"} <= set(first)


def test_a_killed_study_ends_like_one_that_was_not(finished, tmp_path):
    for moment in (lambda: list(tmp_path.glob("s/models/*.safetensors")), lambda: done(tmp_path) >= 2):
        process = start(tmp_path)
        until(moment)
        process.kill()
        process.communicate()
    assert done(tmp_path) < CELLS
    code, _, errors = run(tmp_path)
    assert code == 0, errors
    pd.testing.assert_frame_equal(table(tmp_path / "s"), table(finished))


def test_two_processes_share_a_folder(finished, trained):
    (trained / "s" / "models" / "original.seed-0.safetensors").unlink()  # one trains it, the other does something else
    both = [start(trained), start(trained)]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    pd.testing.assert_frame_equal(table(trained / "s"), table(finished))
    names = [json.loads(line)["name"] for line in (trained / "s" / "times.jsonl").read_text().splitlines()]
    assert sorted(names) == sorted({*names})  # nothing was done twice


def test_workers_may_be_killed_and_stopped_in_any_way(finished, trained):
    def children(process):
        return psutil.Process(process.pid).children(recursive=True)

    # One worker dies: the other continues, and the error names the unfinished cell.
    begun, process = time.time(), start(trained, "--workers", "2")
    until(lambda: in_work(trained, begun) == 2)
    victim = next(child for child in children(process) if "spawn_main" in " ".join(child.cmdline()))
    victim.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert "(exit code -9) ended before the work was done" in errors
    assert "Not finished: " in errors
    assert done(trained) == CELLS - 1

    # Ctrl-C, and kill -9 of the command itself: no worker stays behind.
    for name, send, code in (("*", signal.SIGINT, 130), ("two-stage.*", signal.SIGKILL, -9)):
        for path in trained.glob(f"s/cells/{name}"):
            shutil.rmtree(path)
        begun, process = time.time(), start(trained, "--workers", "2")
        until(lambda since=begun: in_work(trained, since) > 0)
        family = children(process)
        process.send_signal(send)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        assert psutil.wait_procs(family, timeout=20)[1] == []

    code, _, errors = run(trained, "--workers", "2")
    assert code == 0, errors
    pd.testing.assert_frame_equal(table(trained / "s"), table(finished))


def say_threads(folder, *, computing):
    (folder / f"{os.getpid()}").write_text(str(torch.get_num_threads()))


@pytest.mark.parametrize(("threads", "share"), [(6, "3"), (1, "1")])
def test_workers_share_the_threads_that_the_command_was_given(tmp_path, threads, share):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with started(say_threads, tmp_path, workers=2, computing=Compute(device="cpu")) as processes:
            while still_running(processes):
                pass
    finally:
        torch.set_num_threads(before)
    assert [path.read_text() for path in tmp_path.iterdir()] == [share, share]


@pytest.fixture
def study(trained, shell, monkeypatch):
    """Run `unweave study` in this process, in the folder of a study with originals only."""
    monkeypatch.chdir(trained)
    return lambda *words: shell("study", "digits", *words, "--out", "s")


def test_a_failed_cell_ends_with_code_1(study):
    wrong = ["--device", "cpu", "--methods", "ga,original", "--seeds", "1", "--grid", "learning_rate=1e30"]
    failed = study(*wrong)
    assert failed.code == 1
    assert "failed: ga learning_rate=1e30 seed 0" in failed.err
    assert "Traceback" not in failed.err


def test_named_studies_on_the_command_line(study, trained, shell):
    named = study("neighbours", "--device", "cpu", "--seeds", "1", "--json", "--time-limit", "0")
    assert named.code == 0, named.err
    assert (json.loads(named.out)["cells"], json.loads(named.out)["done"]) == (3, 0)
    assert "0 of 3 cells are done" in named.err
    assert list(json.loads((trained / "s" / "study.json").read_text())["presets"]) == ["neighbours"]
    wrong = study("alpha", *QUICK)
    assert wrong.code == 2
    assert "sets its own cells" in wrong.err
    assert "mu " in shell("studies").out
