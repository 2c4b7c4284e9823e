"""Several processes give what one gives: the mathematics is that of the whole batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import nn

from tests.helpers import together
from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.errors import UsageError
from unweave.runtime import pick_device, processes, sharding
from unweave.runtime.processes import Part

COUNTS = (2, 3)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The folders with the results of every case, by the number of processes that ran them."""
    folders = {count: tmp_path_factory.mktemp("together") for count in COUNTS}
    stores = [torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in COUNTS]
    words = [sys.executable, "-m", "tests.helpers.together"]
    for store, (count, folder) in zip(stores, folders.items(), strict=True):
        for name, (steps, _) in together.STOPS.items():
            together.stopped(folder / f"alone {name}", steps=steps)
        words += [str(store.port), str(count), str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folders


@pytest.fixture(scope="module")
def alone():
    """The results of a case in one process, which are computed once."""
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


@pytest.mark.parametrize(("count", "case"), [(count, case) for count in COUNTS for case in together.cases_for(count)])
def test_several_processes_do_what_one_does(several, alone, count, case):
    found, expected = safetensors.torch.load_file(several[count] / f"{case}.safetensors"), dict(alone(case))
    if "micro-batches" in case:  # a part of a batch may be small enough where the whole is not
        del found["cost"], expected["cost"]
    assert_same(found, expected, within=together.WITHIN.get(case.split()[0], 1e-10))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return without_cost(together.in_folder(tmp_path_factory.mktemp("alone") / "run"))


def without_cost(found):
    return {name: tensor for name, tensor in found.items() if name != "cost"}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("stop", together.STOPS)
def test_a_run_resumes_with_another_number_of_processes(several, uninterrupted, count, stop):
    folder = several[count]
    from_one = safetensors.torch.load_file(folder / f"{stop}.safetensors")
    assert_same(without_cost(from_one), uninterrupted)
    to_one = together.in_folder(folder / f"together {stop}", resume=True)
    assert_same(without_cost(to_one), uninterrupted)


@given(total=some.integers(1, 40), count=some.integers(2, 9))
def test_parts_are_equally_large_and_together_the_batch(total, count):
    rows = torch.arange(100, 100 + total)
    parts = [Part(total, number, count) for number in range(count)]
    taken = [part.rows(rows) for part in parts]
    assert len({len(some_rows) for some_rows in taken}) == 1
    assert torch.equal(torch.cat(taken)[:total], rows)
    assert sum(part.real for part in parts) == total


@pytest.fixture
def launched(monkeypatch):
    """As if a launcher had started two processes."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_backend_that_is_missing_is_said_in_one_sentence(launched):
    def fail(**_):
        raise RuntimeError("Distributed package doesn't have NCCL built in\nand more")

    launched.setattr("accelerate.PartialState", fail)
    with pytest.raises(UsageError, match=r"The 2 processes .* have NCCL built in\. Use a backend"):
        pick_device(None)


def test_a_wrong_time_out_is_refused(launched):
    launched.setenv("UNWEAVE_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="UNWEAVE_TIMEOUT is 'soon'"):
        processes.join("cpu")


def test_commands_of_one_process_say_so(launched):
    with pytest.raises(UsageError, match="unweave studies works in one process, but 2 were started"):
        app(["studies"], standalone_mode=False)


def test_a_weight_that_cannot_be_cut_is_named():
    model = nn.Sequential(nn.Linear(2, 2))
    model.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(UsageError, match="The weight scale is a single number"):
        sharding.sharded(model, torch.device("cpu"))


def test_a_block_that_shares_weights_stays_with_the_rest():
    model = together.blocks()
    assert sharding.layers_of(model) == list(model.blocks)
    model.leave.weight = model.blocks[0].weight
    assert sharding.layers_of(model) == [model.blocks[1]]
