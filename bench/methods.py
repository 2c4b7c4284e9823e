"""What each method costs with the device to itself: the seconds of a whole run and its peak memory.

    python -m bench.methods [--methods ft,scrub] [--compile off,on] [--out FOLDER] [--device cpu]

On CUDA a ResNet-18 sees random images at 224 px, with CIFAR-100's number of samples and the settings that the paper
prints for it (the release's for two-stage, PGD and MUNBa). On a CPU it is the benchmark `digits`. Some steps of each
phase, spread evenly, are timed, and the rest is extrapolated. Step sizes are close to zero, so that random weights
cannot diverge; the time does not depend on them. The file is written again after every method.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench import measure, workloads
from bench.measure import wait
from bench.workloads import Workload
from unweave.engine import Phase, Workbench, derive_seed
from unweave.engine.compiling import Compile
from unweave.methods import METHODS, Method, find_method
from unweave.runtime import pick_device, seed_everything

FIRST = 6  # steps that may compile, allocate and load kernels; they are counted once
TIMED = 60  # at most this many later steps of a phase are timed
STILL = 1e-12  # a step size that moves nothing
NAMES = tuple(name for name, method in METHODS.items() if name != "original" and not method.needs_tokens)


def measure_method(
    method: type[Method], workload: Workload, device: torch.device, *, compile: Compile
) -> dict[str, Any]:
    """Return what a run of a method takes, and how many of its steps were timed."""
    configured = workload.configured(method)
    still = {name: STILL for name in configured.to_dict() if name.endswith("learning_rate")}
    phases = method.configure(configured.to_dict(), still).with_given(initial=workload.ours).phases()
    bench = Workbench(workload.ours().to(device), workload.train, device=device, compile=compile)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found = {phase.name: _measure_phase(bench, phase, device) for phase in phases}
    return {
        "seconds": sum(row["seconds"] for row in found.values()),
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "phases": found,
        "settings": configured.to_dict(),
    }


def _measure_phase(bench: Workbench, phase: Phase, device: torch.device) -> dict[str, Any]:
    """Time the start of a phase, its first steps and some later ones; extrapolate the rest."""

    def timed(work: Any) -> float:
        start = time.perf_counter()
        work()
        wait(device)
        return time.perf_counter() - start

    def begin() -> None:
        phase.prepare(bench)
        phase.begin()

    def take(numbers: Sequence[int]) -> None:
        for number in numbers:
            seed_everything(derive_seed(0, phase.name, number) % 2**32, bench.device)
            bench.forward.compiling.step(number, of=phase.steps)
            phase.step(number)

    begun = timed(begin)
    first = list(range(min(FIRST, phase.steps)))
    later = spread(len(first), phase.steps, most=TIMED)
    to_first, to_later = timed(lambda: take(first)), timed(lambda: take(later))
    end = timed(phase.finish) if len(first) + len(later) == phase.steps else 0.0  # the end needs all steps
    step = to_later / len(later) if later else 0.0
    return {
        "seconds": begun + to_first + (phase.steps - len(first)) * step + end,
        "steps": phase.steps,
        "timed_steps": len(first) + len(later),
        "begin_seconds": begun,
        "first_steps_seconds": to_first,
        "step_seconds": step,
    }


def spread(first: int, end: int, *, most: int) -> list[int]:
    """Return at most ``most`` numbers, spread evenly from ``first`` up to ``end``: the steps of a phase may differ.

    >>> spread(6, 10, most=60), spread(6, 1006, most=4)
    ([6, 7, 8, 9], [6, 256, 506, 756])
    """
    count = min(most, end - first)
    return [first + place * (end - first) // count for place in range(count)]


def main() -> None:
    """Measure one method after the other; print a table and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default=",".join(NAMES), help="names, joined by commas")
    parser.add_argument("--compile", default="off", help="off, on or auto; several joined by commas")
    parser.add_argument("--out", type=Path, help="folder for methods.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    workload = workloads.images() if device.type == "cuda" else workloads.digits(workers=0)
    measure_method(find_method("ga"), workload, device, compile="off")  # pays for imports and first kernels
    found: dict[str, dict[str, Any]] = {}
    for way in words.compile.split(","):
        print(f"\n{workload.name}, compile {way}")
        print(f"{'':<12}{'seconds':>10}{'peak GB':>10}{'timed steps':>16}", flush=True)
        for name in words.methods.split(","):
            row = _measured(find_method(name), workload, device, way)
            found.setdefault(way, {})[name] = row
            timed, steps = (sum(phase[of] for phase in row["phases"].values()) for of in ("timed_steps", "steps"))
            peak = f"{row['peak_bytes'] / 1e9:.1f}" if row["peak_bytes"] else "–"
            print(f"{name:<12}{row['seconds']:>10.1f}{peak:>10}{timed:>8} of {steps}", flush=True)
            measure.write(words.out, "methods", {"workload": workload.note, "compile": found}, device)


def _measured(method: type[Method], workload: Workload, device: torch.device, way: Any) -> dict[str, Any]:
    """Measure a method. With ``on``, measure it again with the compiled code, to tell the seconds of compiling."""
    begun = time.perf_counter()
    row = measure_method(method, workload, device, compile=way)
    if way != "on":
        return row
    before = time.perf_counter() - begun
    begun = time.perf_counter()
    row = measure_method(method, workload, device, compile=way)
    return {**row, "compiling_seconds": before - (time.perf_counter() - begun)}


if __name__ == "__main__":
    main()
