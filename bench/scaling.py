"""How time and memory grow with parameters, forget samples and directions of the projection.

python -m bench.scaling --out FOLDER [--device cpu] [--most-parameters 100000000]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench import measure
from bench.measure import Laps, wait
from bench.workloads import METHOD
from unweave.api import Split
from unweave.engine import Workbench
from unweave.maths import remove_span
from unweave.methods import Descent, DescentSettings
from unweave.runtime import pick_device, process_memory

INPUTS, CLASSES, BATCH = 64, 10, 128
PARAMETERS = (100_000, 1_000_000, 10_000_000, 100_000_000)
FORGET = (100, 1_000, 10_000, 100_000)
DIRECTIONS = (1, 2, 3, 4, 6, 8)
RESNET18 = 11_200_000


class Memory:
    """The peak of memory above the memory held at the start. On a CPU it is that of the process."""

    def __init__(self) -> None:
        self.peak_bytes = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Memory]:
    """Measure the peak of memory inside this context."""
    memory = Memory()
    gc.collect()
    if device.type == "cuda":
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        yield memory
        wait(device)
        memory.peak_bytes = torch.cuda.max_memory_allocated(device) - held
        return
    _give_back()
    process_memory.reset()
    before = process_memory.peak() or 0
    yield memory
    memory.peak_bytes = (process_memory.peak() or 0) - before


def _give_back() -> None:
    """Return freed memory to the system. Glibc keeps it, and memory used again would not show."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def network(parameters: int) -> nn.Module:
    """Return a network of three layers with about this many parameters."""
    width = int((-(INPUTS + CLASSES) + ((INPUTS + CLASSES) ** 2 + 4 * parameters) ** 0.5) / 2)
    return nn.Sequential(
        nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def data(forget: int, *, others: int = 4 * BATCH) -> Split:
    """Return random data with this many forget samples."""
    count = forget + 2 * others
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, INPUTS, generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return Split((inputs, labels), forget=range(forget), adjacent=range(forget, forget + others))


def by_parameters(device: torch.device, most: int) -> list[dict[str, Any]]:
    """Measure a step of stage 2 (128 samples of each kind) and one of fine-tuning (SGD with momentum, 128 samples)."""
    settings = METHOD.configure(
        {
            "stage2_forget_batch": BATCH,
            "stage2_forget_batches": 1,
            "stage2_remote_batch": BATCH,
            "stage2_remote_batches": 1,
            "stage2_learning_rate": 1e-6,
        }
    )
    found = []
    for parameters in (size for size in PARAMETERS if size <= most):
        rows = {}
        for name in ("stage2", "fine_tuning"):
            model = network(parameters).to(device)
            bench = Workbench(model, data(BATCH), device=device, compile="off")
            phase: Any = list(settings.phases())[1]
            if name == "fine_tuning":
                recipe = DescentSettings(optimizer="sgd", momentum=0.9, learning_rate=1e-6, batch_size=BATCH)
                phase = Descent(recipe, subsets=("adjacent", "remote"))
            phase.prepare(bench)
            phase.begin()
            laps = Laps(device)
            with peak_memory(device) as memory:
                measure.take_steps(bench, phase, 2)
                measure.take_steps(bench, phase, 3 if parameters > 10**7 and device.type == "cpu" else 7, clock=laps)
            rows[name] = {"seconds": statistics.median(laps.seconds), "peak_bytes": memory.peak_bytes}
            size = sum(parameter.numel() for parameter in model.parameters())
            if name == "stage2":
                some = [[torch.randn_like(p) for p in bench.parameters] for _ in range(3)]
                rows["projection"] = {
                    "seconds": measure.seconds(
                        lambda some=some: remove_span(some[0], some[1:], in_place=True), device, repeats=3
                    )
                }
                del some
            del model, bench, phase
        gradient = 4 * size
        extra = (rows["stage2"]["peak_bytes"] - rows["fine_tuning"]["peak_bytes"]) / gradient
        found.append({"parameters": size, **rows, "gradients_above_fine_tuning": extra})
        print(
            f"{size:>12,} parameters: stage 2 {1e3 * rows['stage2']['seconds']:.2f} ms, fine-tuning "
            f"{1e3 * rows['fine_tuning']['seconds']:.2f} ms, projection {1e3 * rows['projection']['seconds']:.2f} ms, "
            f"{rows['stage2']['peak_bytes'] / 1e6:.0f} MB ({extra:+.2f} gradients above fine-tuning)"
        )
    return found


def by_forget_set(device: torch.device) -> list[dict[str, Any]]:
    """Measure a step of stage 2, with at most ten batches of 128 forget samples, and its start (reference losses)."""
    found = []
    for forget in FORGET:
        settings = METHOD.configure({"stage2_remote_batches": 1, "stage2_learning_rate": 1e-6})
        bench = Workbench(network(100_000).to(device), data(forget), device=device, compile="off")
        phase = list(settings.phases())[1]
        start = time.perf_counter()
        phase.prepare(bench)
        phase.begin()
        wait(device)
        begun = time.perf_counter() - start
        laps = Laps(device)
        with peak_memory(device) as memory:
            measure.take_steps(bench, phase, 2)
            measure.take_steps(bench, phase, 7, clock=laps)
        row = {
            "forget": forget,
            "seconds": statistics.median(laps.seconds),
            "begin_seconds": begun,
            "peak_bytes": memory.peak_bytes,
        }
        print(f"{forget:>12,} forget samples: {1e3 * row['seconds']:.2f} ms a step, {1e3 * begun:.1f} ms to begin")
        found.append(row)
    return found


def by_directions(device: torch.device, parameters: int = RESNET18) -> list[dict[str, Any]]:
    """Measure the projection alone, of a gradient as large as ResNet-18's."""
    like = [torch.empty(512, 512, 3, 3, device=device) for _ in range(parameters // (512 * 512 * 9))]
    found = []
    for count in DIRECTIONS:
        direction, *basis = ([torch.randn_like(part) for part in like] for _ in range(count + 1))
        with peak_memory(device) as memory:
            lap = measure.seconds(
                lambda direction=direction, basis=basis: remove_span(direction, basis, in_place=True),
                device,
                repeats=3 if device.type == "cpu" else 10,
            )
        found.append({"directions": count, "seconds": lap, "peak_bytes": memory.peak_bytes})
        print(f"{count:>12} directions: {1e3 * lap:.2f} ms, {memory.peak_bytes / 1e6:.0f} MB above the gradients")
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    parser.add_argument("--most-parameters", type=int, default=PARAMETERS[-1], help="parameters of the largest network")
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    content = {
        "by_parameters": by_parameters(device, arguments.most_parameters),
        "by_forget_set": by_forget_set(device),
        "by_directions": by_directions(device),
    }
    measure.write(arguments.out, f"scaling-{device.type}", content, device)


if __name__ == "__main__":
    main()
