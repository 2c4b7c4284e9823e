"""Only experiments need the extra ``lab``, and they raise a clear error without it."""

from __future__ import annotations

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
COMMAND = "import sys; from unweave.cli import main; sys.argv[1:] = {words}; main()"


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


def test_unlearning_evaluation_and_records_need_no_lab(tmp_path):
    done = without_lab(CORE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()
    done = without_lab(COMMAND.format(words=["record", "verify", "run/record.json"]), tmp_path)
    assert done.returncode == 0, done.stderr
    done = without_lab(COMMAND.format(words=["methods"]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "two-stage" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo"], "The demo's picture needs the package matplotlib: pip install 'unweave[lab]'"),
        (["study", "digits", "--out", "s"], "A study's table needs the package pyarrow: pip install 'unweave[lab]'"),
        (["tune", "digits", "--out", "t"], "Tuning needs the package optuna: pip install 'unweave[lab]'"),
        (["run", "clinc150", "--data", ".", "--out", "r"], "Reading clinc150 needs the package pyarrow: pip install"),
    ],
)
def test_experiments_without_the_extra_lab_raise_before_they_start(tmp_path, words, message):
    done = without_lab(COMMAND.format(words=words), tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
