"""The plain good loop beside ours, in one run: the protocol's 372 + 96 steps, twice each.

    python -m bench.plain [--steps 16] [--small] [--out FOLDER]

Both sides are timed alike, with a wait after every step, and the rest of the steps is extrapolated. The first time,
code is compiled, unless this machine has compiled it before; the second time it comes from torch's cache. On CUDA both
compile every shape (ours with ``compile="on"``): so few steps would not pay for compiling in the background, which is
our default and what `bench.cold` measures. Torch's compiler is imported before the clock starts. ``--small`` rehearses
on a CPU with the benchmark `digits`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from bench import measure, workloads, yardsticks
from bench.measure import Laps, Stage, wait
from bench.workloads import Workload
from bench.yardsticks import STEPS, TIMED
from unweave.engine.compiling import Compile
from unweave.engine.compiling.torch_internals import import_compiler
from unweave.runtime import pick_device

WARM_UP = 8  # steps of ours in which code is compiled and passes are recorded


def ours(workload: Workload, stage: Stage, device: torch.device, *, steps: int) -> dict[str, Any]:
    """Time a stage of ours, as `yardsticks.plain` times the plain loop's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    compile_: Compile = "on" if device.type == "cuda" else "auto"
    bench, phase = measure.phase_of(workload, stage, device, compile=compile_)
    wait(device)
    begun = time.perf_counter() - start
    laps = Laps(device)
    measure.take_steps(bench, phase, WARM_UP + steps, clock=laps)
    found = yardsticks.timed(laps, stage, first=WARM_UP)
    return {**found, "begin_seconds": begun, "whole_seconds": begun + found["whole_seconds"]}


def main() -> None:
    """Measure, print, write after every side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=TIMED, help="timed steps of each stage")
    parser.add_argument("--small", action="store_true", help="the benchmark digits, to rehearse")
    parser.add_argument("--out", type=Path, help="folder for plain.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    workload = workloads.digits(workers=0) if words.small else workloads.images(test=100)
    sides = {
        "plain": lambda stage: yardsticks.plain(
            workload, stage, device, steps=words.steps, compiled=device.type == "cuda"
        ),
        "ours": lambda stage: ours(workload, stage, device, steps=words.steps),
    }
    if device.type == "cuda":
        import_compiler()
    content: dict[str, Any] = {"workload": workload.note}
    for time_of in ("first", "again"):
        for name, side in sides.items():
            stages = {stage: side(stage) for stage in STEPS}
            whole = sum(row["whole_seconds"] for row in stages.values())
            content.setdefault(name, {})[time_of] = {"stages": stages, "whole_seconds": whole}
            one, two = (1e3 * row["step_seconds"] for row in stages.values())
            first = sum(row["warm_up_seconds"] for row in stages.values())
            print(
                f"{name}, {time_of}: {whole:.1f} s for 372 + 96 steps of {one:.1f} and {two:.1f} ms; first steps "
                f"{first:.1f} s",
                flush=True,
            )
            measure.write(words.out, "plain", content, device)


if __name__ == "__main__":
    main()
