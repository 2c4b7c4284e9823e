"""Data that is larger than memory is read from disk, part by part."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

ALLOWED = 144 * 2**20  # bytes that the process may grow by; 75 to 115 MiB were seen
WIDTH, ROWS_OF_GROUP, GROUPS = 4096, 1024, 36  # 36 × 1024 rows of 4096 float32: four times as much

JOB = """
import gc, json, sys
from pathlib import Path
import torch
from torch import nn
from unweave import Request

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear({width}, 8), nn.ReLU(), nn.Linear(8, 3))

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024

def run(data):
    how = dict(method="ga", settings=dict(epochs=1, batch_size=64, learning_rate=1e-6), no_guard=True)
    read = dict(model="job:model", train=data, input="values", forget="row < 128", keep_data="host")
    Request(**read, device="cpu", **how).run().verdict

sys.modules["job"] = sys.modules["__main__"]
run(sys.argv[1])  # imports, and what libraries set aside once
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
gc.collect()
before = status("VmRSS")
run(sys.argv[2])
print(json.dumps(status("VmHWM") - before))
"""


def write(file, groups):
    """Write row groups of random numbers, the same in each; only one is in memory at a time."""
    from pyarrow import parquet

    schema = pa.schema([("row", pa.int64()), ("values", pa.list_(pa.float32(), WIDTH)), ("label", pa.int64())])
    numbers = np.random.default_rng(0).standard_normal(ROWS_OF_GROUP * WIDTH, dtype=np.float32)
    values = pa.FixedSizeListArray.from_arrays(numbers, WIDTH)
    with parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False) as writer:
        for group in range(groups):
            rows = np.arange(ROWS_OF_GROUP) + group * ROWS_OF_GROUP
            writer.write_table(pa.table([pa.array(rows), values, pa.array(rows % 3)], schema=schema))
    return file


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_a_file_four_times_as_large_as_the_memory_allowed(tmp_path):
    large, small = write(tmp_path / "large.parquet", GROUPS), write(tmp_path / "small.parquet", 1)
    assert large.stat().st_size >= 4 * ALLOWED
    (tmp_path / "job.py").write_text(JOB.format(width=WIDTH))
    done = subprocess.run(
        [sys.executable, "job.py", small, large], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) < ALLOWED
