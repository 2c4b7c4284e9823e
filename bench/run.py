"""How many times faster the two-stage method is than the released loop; on CUDA also how well the GPU is used.

    python -m bench.run [--processes 16,8,4] [--steps 16] [--out FOLDER] [--device cpu]

The yardstick is `bench.released_loop`. Prints a table and, as the last line, the ratios as JSON. On a CPU the model and
the data are those of the benchmark `digits`; on CUDA a ResNet-18 sees random images at 224 px.

On CUDA, ``--processes`` are the yardstick's loader processes, of which the release asks for 16. Ratios are to the first
number; the others show where the yardstick is fastest. ``--steps`` of each stage of it are timed. `bench.yardsticks`
measures only the yardsticks, with a second one: a plain good loop.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench import gpu, measure, released_loop, workloads
from bench.measure import Laps, Stage
from bench.workloads import RESTARTED_WORKERS, Workload
from bench.yardsticks import TIMED, counts
from unweave.maths import remove_span
from unweave.runtime import pick_device

ROUNDS = 5
WORKERS = 2


def compare(workload: Workload, device: torch.device, *, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Return the median seconds of a step, a projection and an evaluation on both sides, and their ratios."""
    sides: dict[str, tuple[Callable[[], list[float]], Callable[[], list[float]]]] = {
        "stage1": (_our_steps(workload, 1, device, 20), _their_stage1(workload, device, 20)),
        "stage2": (_our_steps(workload, 2, device, 8), _their_stage2(workload, device, 8)),
        "projection": _projections(workload, device),
        "evaluation": _evaluations(workload, device),
    }
    found = {}
    for part, both in sides.items():
        seconds, yardstick, ratio = measure.in_turns(*both, rounds=rounds)
        found[part] = {"seconds": seconds, "yardstick_seconds": yardstick, "ratio": ratio}
    return found


def _our_steps(workload: Workload, stage: Stage, device: torch.device, count: int) -> Callable[[], list[float]]:
    """Return a function that takes the next steps of a stage of ours and returns their seconds."""
    bench, phase = measure.phase_of(workload, stage, device)
    taken = 0

    def steps() -> list[float]:
        nonlocal taken
        laps = Laps(device)
        measure.take_steps(bench, phase, count, first=taken, clock=laps)
        taken += count
        return laps.seconds

    return steps


def _their_stage1(workload: Workload, device: torch.device, count: int) -> Callable[[], list[float]]:
    """Return a function that takes steps of the yardstick's stage 1 and returns their seconds."""
    model, s = workload.theirs().to(device), workload.settings

    def steps() -> list[float]:
        laps = Laps(device)
        released_loop.stage1(
            model,
            workload.loaders(device)["train"],
            steps=count,
            remote_batch=s.stage1_remote_batch,
            forget_batch=s.stage1_forget_batch,
            learning_rate=s.stage1_learning_rate,
            clock=laps,
        )
        return laps.seconds

    return steps


def _their_stage2(workload: Workload, device: torch.device, count: int) -> Callable[[], list[float]]:
    """Return a function that takes steps of the yardstick's stage 2 and returns their seconds."""
    model, s = workload.theirs().to(device), workload.settings

    def steps() -> list[float]:
        laps = Laps(device)
        released_loop.stage2(
            model,
            workload.loaders(device)["train"],
            steps=count,
            adjacent_batch=s.stage2_adjacent_batch,
            forget_batch=s.stage2_forget_batch,
            remote_batch=s.stage2_remote_batch,
            batch_limit=s.stage2_remote_batches,
            learning_rate=s.stage2_learning_rate,
            clock=laps,
        )
        return laps.seconds

    return steps


def _projections(workload: Workload, device: torch.device) -> tuple[Callable[[], list[float]], ...]:
    """Return a function for each side that projects ten times and returns the seconds."""
    parameters = list(workload.theirs().to(device).parameters())
    first, second, third = ([torch.randn_like(p) for p in parameters] for _ in range(3))

    def timed(work: Callable[[], Any]) -> list[float]:
        laps = Laps(device)
        laps()
        for _ in range(10):
            work()
            laps()
        return laps.seconds

    return (
        lambda: timed(lambda: remove_span(first, [second, third])),
        lambda: timed(lambda: released_loop.project(first, second, third)),
    )


def _evaluations(workload: Workload, device: torch.device) -> tuple[Callable[[], list[float]], ...]:
    """Return a function for each side that evaluates a model and returns the seconds."""
    ours, theirs = workload.ours().to(device), workload.theirs().to(device)

    def timed(work: Callable[[], Any]) -> list[float]:
        laps = Laps(device)
        laps()
        work()
        laps()
        return laps.seconds

    return (
        lambda: timed(lambda: measure.evaluate(ours, workload, device)),
        lambda: timed(lambda: released_loop.evaluate(theirs, workload.loaders(device), size=256)),
    )


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    """Print a table of both sides."""
    print(f"\n{title}\n{'':<12}{'ours':>12}{'yardstick':>12}{'ratio':>8}")
    for part, row in found.items():
        print(f"{part:<12}{_short(row['seconds']):>12}{_short(row['yardstick_seconds']):>12}{row['ratio']:>7.1f}×")


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def measure_cpu(device: torch.device, out: Path | None) -> dict[str, float]:
    """Compare on `digits` with the yardstick as released, and with one that reads its data in the same process."""
    results: dict[str, Any] = {}
    for workers in (0, WORKERS):
        name = f"in {workers} processes that start anew, as released" if workers else "in the same process"
        found = compare(workloads.digits(workers=workers), device, rounds=3 if workers else ROUNDS)
        show(f"digits, the median of a step; the yardstick reads its data {name}", found)
        results["as_released" if workers else "in_one_process"] = found
    ratios = {part: round(row["ratio"], 2) for part, row in results["as_released"].items()}
    measure.write(out, f"ratios-digits-{device.type}", {"parts": results, "ratios": ratios}, device)
    return ratios


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for JSON files")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    parser.add_argument(
        "--processes", type=counts, default=[RESTARTED_WORKERS], help="on CUDA: of the yardstick's loaders, as 16,8,4"
    )
    parser.add_argument("--steps", type=int, default=TIMED, help="on CUDA: timed steps of each stage of the yardstick")
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    print(f"{device}, {torch.get_num_threads()} threads", file=sys.stderr)
    if device.type == "cuda":
        ratios = gpu.measure_gpu(device, arguments.out, processes=arguments.processes, steps=arguments.steps)
    else:
        ratios = measure_cpu(device, arguments.out)
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
