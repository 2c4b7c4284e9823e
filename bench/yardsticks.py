"""How long the two yardsticks take: the released loop by its number of loader processes, and a plain good loop.

    python -m bench.yardsticks [--processes 16,8,4] [--steps 16] [--size 224] [--train 50000] [--out FOLDER]

The release asks for 16 loader processes; the other numbers show where its loop is fastest. Each stage is timed for that
many steps after its first, and the rest of the protocol's 372 + 96 steps is extrapolated. A small ``--size`` and
``--train`` rehearse everything on a CPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench import measure, plain_loop, released_loop, workloads
from bench.measure import Laps, Stage
from bench.workloads import RESTARTED_WORKERS, Workload
from unweave.data import SUBSETS
from unweave.runtime import pick_device

STEPS: Mapping[Stage, int] = {1: 372, 2: 96}  # of the released protocol on CIFAR-100
TIMED = 16
WARM_UP = 3  # steps of the plain loop in which code is compiled


def sizes(workload: Workload, stage: Stage) -> dict[str, Any]:
    """Return the batch sizes and the step size of a stage, as both loops call them."""
    s = workload.settings.to_dict()
    names = ["remote_batch", "forget_batch", "learning_rate", *(["adjacent_batch"] if stage == 2 else [])]
    found = {name: s[f"stage{stage}_{name}"] for name in names}
    return {**found, "batch_limit": s["stage2_remote_batches"]} if stage == 2 else found


def timed(laps: Laps, stage: Stage, *, first: int) -> dict[str, Any]:
    """Return what a stage takes, from the steps after the first ones."""
    step = statistics.mean(laps.seconds[first:])
    warm_up = sum(laps.seconds[:first])
    found = {"step_seconds": step, "steps": len(laps.seconds) - first, "warm_up_seconds": warm_up}
    found["whole_seconds"] = warm_up + (STEPS[stage] - first) * step
    if laps.device.type == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated(laps.device)
    return found


def released(workload: Workload, stage: Stage, device: torch.device, *, processes: int, steps: int) -> dict[str, Any]:
    """Time the released loop with this number of loader processes."""
    model = workload.theirs().to(device)
    loaders = workload.loaders(device, workers=processes)["train"]
    laps = _begin(device)
    run = released_loop.stage1 if stage == 1 else released_loop.stage2
    run(model, loaders, steps=steps + 1, clock=laps, **sizes(workload, stage))
    return {"processes": processes, **timed(laps, stage, first=1)}


def plain(workload: Workload, stage: Stage, device: torch.device, *, steps: int, compiled: bool) -> dict[str, Any]:
    """Time the plain good loop, with the data on the device."""
    model = workload.ours().to(device, memory_format=torch.channels_last)
    if compiled:
        torch.compiler.reset()  # torch stops compiling after some variants of a function; others ran before
    used: Any = torch.compile(model) if compiled else model
    samples = workload.train.samples
    data = {}
    for subset in SUBSETS:
        inputs, labels = samples.read(workload.train.rows(subset))
        data[subset] = (inputs.to(device), labels.to(device))
    laps = _begin(device)
    run = plain_loop.stage1 if stage == 1 else plain_loop.stage2
    run(used, data, steps=steps + WARM_UP, clock=laps, **sizes(workload, stage))
    return {"compiled": compiled, **timed(laps, stage, first=WARM_UP)}


def _begin(device: torch.device) -> Laps:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return Laps(device)


def both(
    workload: Workload, device: torch.device, *, processes: Sequence[int], steps: int, compiled: bool
) -> dict[str, Any]:
    """Return the seconds of both yardsticks, by stage; those of the released loop for each number of processes."""
    loops = {
        str(count): {stage: released(workload, stage, device, processes=count, steps=steps) for stage in STEPS}
        for count in processes
    }
    whole = {count: sum(found[stage]["whole_seconds"] for stage in STEPS) for count, found in loops.items()}
    simple = {stage: plain(workload, stage, device, steps=steps, compiled=compiled) for stage in STEPS}
    return {
        "released": loops,
        "released_whole_seconds": whole,
        "released_fastest_processes": int(min(whole, key=lambda count: whole[count])),
        "plain": simple,
        "plain_whole_seconds": sum(simple[stage]["whole_seconds"] for stage in STEPS),
    }


def show(content: Mapping[str, Any]) -> None:
    """Print a line for each yardstick."""
    for count, seconds in content["released_whole_seconds"].items():
        one, two = (content["released"][count][stage]["steps"] for stage in STEPS)
        print(f"released loop, {count} loader processes: {seconds:.1f} s for 372 + 96 steps ({one} and {two} timed)")
    print(f"plain good loop: {content['plain_whole_seconds']:.1f} s")


def counts(text: str) -> list[int]:
    """Return numbers that are joined by commas.

    >>> counts("16,4")
    [16, 4]
    """
    return [int(word) for word in text.split(",")]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=counts, default=[RESTARTED_WORKERS], help="of the loaders, such as 16,8,4")
    parser.add_argument("--steps", type=int, default=TIMED, help="timed steps of each stage")
    parser.add_argument("--size", type=int, default=224, help="pixels of an image")
    parser.add_argument("--train", type=int, default=50_000, help="training images")
    parser.add_argument("--eager", action="store_true", help="do not compile the plain loop")
    parser.add_argument("--out", type=Path, help="folder for yardsticks.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    workload = workloads.images(size=words.size, train=words.train, test=100)
    found = both(workload, device, processes=words.processes, steps=words.steps, compiled=not words.eager)
    show(found)
    measure.write(words.out, "yardsticks", {"workload": workload.note, **found}, device)


if __name__ == "__main__":
    main()
