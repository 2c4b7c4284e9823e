"""Only experiments need the extra ``lab``, and they raise a clear error without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.places import ROOT

HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "pyarrow", "PIL", "optuna"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
CORE = """
import warnings

import torch
from torch import nn

import unweave as uw

warnings.simplefilter("ignore", uw.RunWarning)
data = torch.randn(60, 5), torch.arange(60) // 20
split = uw.Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
request = uw.Request(id="17")
device = {"compute": uw.Compute("cpu")}
how = {**device, "guard": None, "stage2_epochs": 1}
result = uw.unlearn(model, split, "two-stage", test=split, out="run", **how)
uw.record.write(result, request)
questions = ("membership", "reference", "probe")
scores = uw.evaluate(result.model, split, split, reference=[model], questions=questions, **device)
assert scores["train"]["forget"]["samples"] == 8
"""
COMMANDS = """
import contextlib, io, json, os, sys
from unweave.cli import main

found = []
for words in {commands}:
    sys.argv[1:] = words
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    found.append({{"code": code, "out": out.getvalue(), "errors": errors.getvalue(), "files": os.listdir()}})
print(json.dumps(found))
"""
EXPERIMENTS = [
    (["demo"], "The demo's picture needs the package matplotlib: pip install 'unweave[lab]'"),
    (["study", "digits", "--out", "s"], "A study's table needs the package pyarrow: pip install 'unweave[lab]'"),
    (["tune", "digits", "--out", "t"], "Tuning needs the package optuna: pip install 'unweave[lab]'"),
    (["run", "clinc150", "--data", ".", "--out", "r"], "Reading clinc150 needs the package pyarrow: pip install"),
]


def without_lab(code, folder):
    """Run Python code in a process that finds none of the packages of the extra ``lab``."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def commands(*every, at):
    """Call commands in a process without those packages; return their codes, what they printed, and what is there."""
    done = without_lab(COMMANDS.format(commands=every), at)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_unlearning_evaluation_and_records_need_no_lab(tmp_path):
    done = without_lab(CORE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()
    verified, listed = commands(["record", "verify", "run/record.json"], ["methods"], at=tmp_path)
    assert verified["code"] == 0, verified["errors"]
    assert listed["code"] == 0, listed["errors"]
    assert "two-stage" in listed["out"]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What commands say that need the extra, in one process, by their words."""
    every = [words for words, _ in EXPERIMENTS]
    found = commands(*every, at=tmp_path_factory.mktemp("without"))
    return {" ".join(words): one for words, one in zip(every, found, strict=True)}


@pytest.mark.parametrize(("words", "message"), EXPERIMENTS)
def test_experiments_without_the_extra_lab_raise_before_they_start(refused, words, message):
    found = refused[" ".join(words)]
    assert found["code"] == 2
    assert message in found["errors"]
    assert found["files"] == []
