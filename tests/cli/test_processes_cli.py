"""`unweave run` under torchrun: a process dies, others resume the run, and the files equal those of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psutil
import pytest
import safetensors.torch
import torch

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration
from unweave import Compute, Split

SETTINGS = {"stage1_epochs": 2, "stage2_epochs": 3, "stage2_adjacent_batch": 65, "stage1_remote_batch": 75}


def torchrun(count):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m", "unweave"]


def words(folder, out):
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    # Training would make rounding errors large, so the model comes from another run.
    return ["run", "digits", "--device", "cpu", "--after", str(folder / "model"), "--watch", *settings, "--out", out]


def start(folder, command):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def finish(process):
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


@pytest.fixture
def folder(tmp_path, digits):
    """A folder with a run whose model other runs start from."""
    _, task, original = digits
    remote = task.train["remote"]
    split = Split(task.train.samples, forget=remote[:5], adjacent=task.train["adjacent"], remote=remote[5:])
    unlearn_on_record(
        original, split, "original", out=tmp_path / "model", request={"id": "first"}, compute=Compute("cpu")
    )
    return tmp_path


def test_a_run_survives_the_death_of_a_process_and_ends_as_in_one(folder, shell, monkeypatch):
    killed = start(folder, [*torchrun(2), *words(folder, "together"), "--checkpoint-steps", "1"])
    while not list(folder.glob("together.unfinished/checkpoints/00-0000000[3-9].json")):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.005)
    launcher = psutil.Process(killed.pid)
    ranks = {child.environ().get("RANK"): child for child in launcher.children(recursive=True)}
    launcher.suspend()  # so that it does not end the first process before that one notices the death of the second
    ranks["1"].kill()
    began = time.monotonic()
    while ranks["0"].status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - began < 60
        time.sleep(0.01)
    launcher.resume()
    code, _, errors = finish(killed)
    assert code == 1
    assert errors.count("unweave: Another of the 2 processes of this run ended") == 1
    assert (folder / "together.unfinished").is_dir()

    resumed = start(folder, [*torchrun(3), *words(folder, "together"), "--resume"])
    monkeypatch.chdir(folder)
    alone = shell(*words(folder, "alone"))
    code, output, errors = finish(resumed)
    assert code == 0, errors
    assert output.count("Written to") == 1
    assert alone.code == 0, alone.err
    assert_same_files(folder / "together", folder / "alone")


def assert_same_files(several, one):
    assert sorted(path.name for path in several.iterdir()) == sorted(path.name for path in one.iterdir())
    assert configuration(several) == configuration(one)
    weights, expected = (safetensors.torch.load_file(path / "model.safetensors") for path in (several, one))
    torch.testing.assert_close(weights, expected, rtol=1e-3, atol=1e-4)
    rows, expected_rows = (
        [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()] for path in (several, one)
    )
    assert [(row["phase"], row["step"]) for row in rows] == [(row["phase"], row["step"]) for row in expected_rows]
    for row, expected_row in zip(rows, expected_rows, strict=True):
        assert {k: v for k, v in row.items() if k != "phase"} == pytest.approx(
            {k: v for k, v in expected_row.items() if k != "phase"}, rel=1e-2, abs=5e-3
        )
    scores, expected_scores = (json.loads((path / "scores.json").read_text()) for path in (several, one))
    assert keys(scores) == keys(expected_scores)
    for subset in ("forget", "adjacent", "remote"):
        for name in ("accuracy", "loss", "samples"):
            assert scores["train"][subset][name] == pytest.approx(expected_scores["train"][subset][name], abs=1e-2)


def keys(value, path=()):
    """Return the paths of the values in a nested mapping."""
    if not isinstance(value, dict):
        return {path}
    return {place for name, inner in value.items() for place in keys(inner, (*path, name))}
