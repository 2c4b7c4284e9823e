"""Several processes give what one gives: the mathematics is that of the whole batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import safetensors.torch
import torch

from tests import together

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


@pytest.fixture(scope="module", params=[2, 3], ids=lambda count: f"{count} processes")
def several(request, tmp_path_factory):
    """The folder with what several processes made of every case."""
    folder = tmp_path_factory.mktemp("together")
    command = [*TORCHRUN, f"--nproc-per-node={request.param}", "-m", "tests.together", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def alone():
    """What one process makes of a case, found once."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = together.CASES[name]()
        return found[name]

    return of


def assert_same(found, expected, *, within=1e-10):
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        words = f"{name} is not the same: {found[name]}, expected {tensor}"
        torch.testing.assert_close(found[name], tensor, rtol=within, atol=within, msg=words)


@pytest.mark.parametrize("case", together.CASES)
def test_several_processes_do_what_one_does(several, alone, case):
    found, expected = safetensors.torch.load_file(several / f"{case}.safetensors"), dict(alone(case))
    if "micro-batches" in case:  # a part of a batch may be small enough where the whole is not
        del found["cost"], expected["cost"]
    assert_same(found, expected)
