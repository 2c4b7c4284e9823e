"""How many workers share a device is measured; the report says how near that comes to the ideal."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from unweave import Compute
from unweave.cli.worker_count import sharing
from unweave.errors import RunError, UsageError
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import Packing, mps, packing

SMALL = partial(find_benchmark, "digits", options={"small": True})


def doubled(monkeypatch, rates, *, most=16, room=0, used=0):
    """Let the search see these rates."""
    board = SimpleNamespace(
        most=most, bytes=[used], room=SimpleNamespace(value=room), numbers=SimpleNamespace(value=most)
    )
    monkeypatch.setattr(packing, "_rate", lambda board, count, processes: rates[count])
    return packing._doubled(board, [])


def test_workers_are_doubled_while_that_makes_all_together_faster(monkeypatch):
    found = doubled(monkeypatch, {1: 10.0, 2: 19.0, 4: 31.0, 8: 33.0})
    assert found.workers == 4
    assert str(found) == (
        "4 workers share the device: together 3.1 times as fast as one (ideal: 4.0). 8 are hardly faster."
    )


def test_one_worker_that_fills_the_device_stays_alone(monkeypatch):
    found = doubled(monkeypatch, {1: 10.0, 2: 10.5})
    assert found.workers == 1
    assert str(found) == "One worker has the device to itself. 2 are hardly faster."


def test_memory_and_cores_are_limits(monkeypatch):
    rates = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}
    tight = doubled(monkeypatch, rates, room=8 << 30, used=1 << 30)  # 2 GB each for the runs, 1 GB for the process
    assert (tight.workers, tight.limit) == (2, "4 may not fit into its memory")
    few = doubled(monkeypatch, rates, most=4)
    assert (few.workers, few.limit) == (4, "The processor has no cores for more")


def test_real_processes_are_measured(monkeypatch):
    monkeypatch.setattr(packing, "SECONDS", 0.1)
    monkeypatch.setattr(packing, "LOOKS", 2)  # on a busy machine the speed never settles
    monkeypatch.setattr(packing.os, "cpu_count", lambda: 2)
    found = packing.packed(SMALL, Compute("cpu"))
    assert set(found.rates) == {1, 2}
    assert all(rate > 0 for rate in found.rates.values())
    assert found.workers in (1, 2)


def broken():
    raise UsageError("This benchmark has no data.")


def test_a_benchmark_that_fails_ends_the_measurement(monkeypatch, capfd):
    monkeypatch.setattr(packing.os, "cpu_count", lambda: 1)
    with pytest.raises(RunError, match="Give --workers a number"):
        packing.packed(broken, Compute("cpu"))
    assert "no data" in capfd.readouterr().err


def test_what_workers_says(monkeypatch, capsys):
    with sharing("3", SMALL, Compute("cpu"), cluster=None) as count:
        assert count == 3
    for wrong in ("0", "-1", "many", "1.5", "99999"):
        refused = pytest.raises(UsageError, match="must be a number from 1 to 1024, or auto")
        with refused, sharing(wrong, SMALL, Compute(), cluster=None):
            pass
    with pytest.raises(UsageError, match="measures this machine only"), sharing("auto", SMALL, Compute(), cluster="x"):
        pass
    monkeypatch.setattr("unweave.cli.worker_count.packed", lambda source, computing: Packing(2, {1: 1.0, 2: 1.8}, "So"))
    with sharing("auto", SMALL, Compute("cpu"), cluster=None) as count:
        assert count == 2
    assert "together 1.8 times as fast as one (ideal: 2.0)" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
@pytest.mark.parametrize("works", [True, False])
def test_the_gpu_is_shared_through_mps_where_it_starts(works, tmp_path, monkeypatch):
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\n[ -n "$1" ] || cat >> {tmp_path}/said\nexit {0 if works else 1}\n')
    control.chmod(control.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mps, "pick_device", lambda device: torch.device("cuda"))
    with mps.shared_gpu(Compute()):
        assert ("CUDA_MPS_PIPE_DIRECTORY" in os.environ) is works
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    said = tmp_path / "said"
    assert (said.read_text() if said.exists() else "") == ("quit\n" if works else "")
