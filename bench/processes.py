"""What several processes send each other in a step, in bytes counted by the system.

    python -m bench.processes --out results/processes [--projection]

Starts two and then three processes on this machine's CPU with torchrun. Each takes a few steps of several phases, with
whole and with sharded weights. The bytes are those that the process wrote to its sockets; Linux counts them in
``/proc/self/io``. The file also holds what the formula in ``docs/processes.md`` expects. From the measured step time of
one GPU, the same formula then projects the time of a step on 8 and on 64 GPUs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench import measure
from unweave import Split
from unweave.engine import Phase, Workbench
from unweave.methods import find_method
from unweave.runtime import exchange, processes

COUNTS, WIDTHS, BATCHES = (2, 3), (64, 256), (24, 96)
CLASSES, STEPS = 10, 3
REMOTE_BATCHES, FORGET_BATCHES = 2, 2
# In a step: gradients; passes of the model with and without gradient; numbers gathered, in batches.
WORK = {
    "fine-tune": {"gradients": 1, "passes": 1, "plain_passes": 0, "values": 1},
    "two-stage, stage 1": {"gradients": 1, "passes": 1, "plain_passes": 0, "values": 2},
    "two-stage, stage 2": {"gradients": 3, "passes": 5, "plain_passes": 0, "values": 5},
    "SCRUB": {"gradients": 1, "passes": 1, "plain_passes": 1, "values": 2 * CLASSES + 2},  # labels take 8 bytes
}
FLOAT = 4
SUM_AND_CUT = {"gloo": 2, "nccl": 1}  # what a reduce-scatter sends; gloo makes it from an all-reduce
# One direction, per GPU, in bytes a second: NVLink 4 within a node of 8, NDR InfiniBand (400 Gb/s a GPU) between nodes.
RATES = {8: 450e9, 64: 50e9}
SECONDS_EACH = {8: 30e-6, 64: 100e-6}  # assumed time to start a collective
RESNET18 = 11_186_772  # with 20 classes


class Blocks(nn.Module):
    """Two blocks, which hold most of the weights, and a last layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        kinds = [nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)) for _ in range(2)]
        self.blocks, self.last = nn.ModuleList(kinds), nn.Linear(width, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        for block in self.blocks:
            inputs = inputs + block(inputs)
        found: torch.Tensor = self.last(inputs)
        return found


def phase_of(work: str, batch: int) -> Phase:
    """Return the phase of a piece of work; all its batches have one size."""
    if work == "fine-tune":
        method = find_method("ft")
        return next(iter(method.configure({"batch_size": batch, "normalisation": "eval"}).phases()))
    if work == "SCRUB":
        method = find_method("scrub")
        settings = {"batch_size": batch, "forget_batch": batch, "forget_epochs": 0, "normalisation": "eval"}
        return next(iter(method.configure(settings).phases()))
    method = find_method("two-stage")
    sizes = ("stage1_remote", "stage1_forget", "stage2_adjacent", "stage2_forget", "stage2_remote")
    settings = {f"{name}_batch": batch for name in sizes}
    settings |= {"stage2_forget_batches": FORGET_BATCHES, "stage2_remote_batches": REMOTE_BATCHES}
    phases = list(method.configure(settings).phases())
    return phases[0] if work.endswith("1") else phases[1]


def sent() -> int:
    """Return how many bytes this process has written so far. It writes to no files meanwhile."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def measured(work: str, width: int, batch: int, *, shard: bool) -> dict[str, Any]:
    """Return the bytes that a process sends in a step, on average over a few."""
    samples = 8 * batch
    generator = torch.Generator().manual_seed(0)
    data = (torch.randn(samples, width, generator=generator), torch.arange(samples) % CLASSES)
    cut = [0, 2 * batch, 4 * batch, samples]
    parts = dict(zip(("forget", "adjacent", "remote"), map(range, cut[:-1], cut[1:]), strict=True))
    bench = Workbench(Blocks(width), Split(data, **parts), device=torch.device("cpu"), shard=shard)
    phase = phase_of(work, batch)
    phase.prepare(bench)
    phase.begin()
    phase.step(0)
    dist.barrier()
    before = sent()
    for number in range(1, 1 + STEPS):
        phase.step(number)
    mine = torch.tensor((sent() - before) / STEPS, dtype=torch.float64)
    parameters = sum(parameter.numel() for parameter in Blocks(width).parameters())
    return {
        "work": work,
        "weights": "cut" if shard else "whole",
        "processes": processes.count(),
        "parameters": parameters,
        "batch": batch,
        "bytes_per_step": float(exchange.summed(mine)) / processes.count(),
        "expected_bytes_per_step": expected(WORK[work], parameters, batch, processes.count(), shard=shard),
    }


def expected(work: dict[str, int], parameters: int, batch: int, count: int, *, shard: bool) -> float:
    """Return the bytes that a process should send in a step: gradients (or sharded weights), and losses."""
    share = (count - 1) / count
    losses = work["values"] * batch * FLOAT * share
    if shard:
        # Weights are gathered for the forward and for the backward pass; then gradients are reduced and scattered.
        times = (2 + SUM_AND_CUT["gloo"]) * work["passes"] + work["plain_passes"]
        return times * parameters * FLOAT * share + losses
    return 2 * work["gradients"] * parameters * FLOAT * share + losses


def projected(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """Return step times on more GPUs of the same kind, if each computes as fast as the one that was measured."""
    rows = []
    for stage, gradients in (("1", 1), ("2", 3)):
        one = gpu["stages"][stage]["step_seconds"]
        for count, rate in RATES.items():
            load = 2 * gradients * RESNET18 * FLOAT * (count - 1) / count
            talk = load / rate + (gradients + 2) * SECONDS_EACH[count]
            rows.append(
                {
                    "stage": int(stage),
                    "gpus": count,
                    "measured_seconds_on_one": one,
                    "communication_seconds": talk,
                    "same_batch_seconds": one / count + talk,
                    "same_batch_speedup": one / (one / count + talk),
                    "batch_times_gpus_seconds": one + talk,
                    "batch_times_gpus_efficiency": one / (one + talk),
                }
            )
    return rows


def together() -> None:
    """Measure everything in the processes that torchrun started; the first one prints it."""
    torch.set_num_threads(1)
    processes.join("cpu")
    cases = [
        (work, width, batch, cut) for work in WORK for width in WIDTHS for batch in BATCHES for cut in (False, True)
    ]
    rows = [measured(work, width, batch, shard=cut) for work, width, batch, cut in cases]
    if processes.is_first():
        print(json.dumps(rows))
    processes.leave()


def main() -> None:
    """Start the processes, collect their measurements and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--projection", action="store_true", help="only project the step times of the GPU")
    parser.add_argument("--gpu", type=Path, default=Path("results/speed/h200/gpu.json"))
    options = parser.parse_args()
    if not options.projection:
        _count_bytes(options.out)
    gpu = json.loads(options.gpu.read_text())
    assumed = {"rates": RATES, "seconds_each": SECONDS_EACH, "parameters": RESNET18, "measured": gpu["provenance"]}
    measure.write(options.out, "projection", {"assumed": assumed, "rows": projected(gpu)}, torch.device("cpu"))
    print(json.dumps(projected(gpu), indent=2))


def _count_bytes(out: Path | None) -> None:
    """Start processes, and write what they send each other."""
    rows: list[dict[str, Any]] = []
    for count in COUNTS:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        done = subprocess.run([*launcher, "-m", "bench.processes"], stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout.strip().splitlines()[-1])
    for row in rows:
        print(
            f"{row['work']:<20}{row['weights']:<7}{row['processes']:>2} processes {row['parameters']:>9,} parameters "
            f"batch {row['batch']:>3}: {row['bytes_per_step']:>12,.0f} bytes, "
            f"{row['bytes_per_step'] / row['expected_bytes_per_step']:.3f} of the expected bytes"
        )
    measure.write(out, "bytes", {"rows": rows}, torch.device("cpu"))


if __name__ == "__main__":
    together() if processes.launched() > 1 else main()
