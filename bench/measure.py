"""Clocks, our side of a comparison, and the file that a benchmark writes."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bench.workloads import Workload
from unweave.engine import History, Phase, Workbench, derive_seed
from unweave.engine.compiling import Compile
from unweave.evaluation import observe
from unweave.evaluation.membership import svc_features
from unweave.methods import find_method
from unweave.runtime import seed_everything
from unweave.storage import provenance

OWN = find_method("unweave")
Stage = Literal[1, 2, "constrained"]


def wait(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Laps:
    """Notes the seconds between each call and the one before."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, list[float]()
        self._last: float | None = None

    def __call__(self) -> None:
        """Wait for the device and note the time since the last call."""
        wait(self.device)
        now = time.perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now


def seconds(work: Callable[[], Any], device: torch.device, *, repeats: int) -> float:
    """Return the median seconds of some work, after a first run that does not count."""
    work()
    laps = Laps(device)
    laps()
    for _ in range(repeats):
        work()
        laps()
    return statistics.median(laps.seconds)


def in_turns(
    ours: Callable[[], list[float]], theirs: Callable[[], list[float]], *, rounds: int
) -> tuple[float, float, float]:
    """Return our median seconds, theirs, and how many times faster ours is.

    Each side returns the seconds of some steps. The sides take turns, and the ratio is the median of the ratios of the
    rounds, so that other work on the machine affects both.
    """
    both = ours, theirs
    for side in both:
        side()  # the first run does not count
    laps: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            laps[index].append(statistics.median(both[index]()))
    ratios = [slow / fast for fast, slow in zip(*laps, strict=True)]
    return statistics.median(laps[0]), statistics.median(laps[1]), statistics.median(ratios)


def phase_of(
    workload: Workload,
    stage: Stage,
    device: torch.device,
    *,
    compile: Compile = "auto",
) -> tuple[Workbench, Phase]:
    """Return a stage of the two-stage method, or the only phase of our own method, ready for its first step."""
    bench = Workbench(workload.ours().to(device), workload.train, device=device, compile=compile)
    if stage == "constrained":
        (phase,) = OWN.configure({}).phases()
    else:
        phase = list(workload.settings.phases())[stage - 1]
    phase.prepare(bench)
    phase.begin()
    return bench, phase


def take_steps(
    bench: Workbench, phase: Phase, count: int, *, first: int = 0, clock: Callable[[], None] | None = None
) -> History:
    """Take steps, with everything that the engine does around a step."""
    history = History()
    if clock:
        clock()
    for number in range(first, first + count):
        seed_everything(derive_seed(0, phase.name, number) % 2**32, bench.device)
        bench.forward.compiling.step(number, of=phase.steps)
        history.add(phase.name, number, phase.step(number))
        if clock:
            clock()
    _ = history.rows
    return history


def evaluate(model: nn.Module, workload: Workload, device: torch.device) -> dict[str, Any]:
    """Return the six accuracies, the losses and the features of attacks, from one pass over the data."""
    observed = observe(model, workload.train, workload.test, device=device)
    return {
        f"{part} {subset}": (predictions.correct.double().mean(), predictions.losses, svc_features(predictions))
        for part, subsets in observed.parts.items()
        for subset, predictions in subsets.items()
    }


def write(folder: Path | None, name: str, content: dict[str, Any], device: torch.device) -> None:
    """Write a result as JSON, with its provenance. Folders of this machine are cut to their last name."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    about = provenance(device) | {"threads": torch.get_num_threads()}
    started = sys.modules["__main__"].__spec__  # None if a file was started instead of a module
    words = [Path(word).name if Path(word).is_absolute() or word == str(folder) else word for word in sys.argv[1:]]
    about["command"] = " ".join(["python -m", started.name if started else name, *words])
    text = json.dumps({"provenance": about, **content}, indent=2)
    (folder / f"{name}.json").write_text(text + "\n")
