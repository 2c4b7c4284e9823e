"""One side of a comparison of step times: runs on the digits through the public API, timed at every forward pass.

`bench.steps` starts this file by its path, once for each source tree. So it imports nothing from `bench`, and from the
package only `unweave` and `find_benchmark`, whose module has moved. The work between two forward passes is the same in
every round, so the times of one interval can be compared from round to round.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import inspect
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import unweave as uw

Stamp = tuple[float, float, int, bool]  # wall seconds, processor seconds, calls so far, whether gradients are on
Interval = tuple[float, float, int]
MODULES = ("unweave.lab.benchmarks", "unweave.benchmarks")  # where `find_benchmark` stands now, and where it stood
# Fewer epochs than the benchmark has, because many rounds tell more than many steps.
BRIEFLY = {"stage1_epochs": 3, "stage2_epochs": 6}
FINE_TUNING_EPOCHS = 4
STAMPS: list[Stamp] = []
CALLS = [0]


def stamp(*_: Any) -> None:
    """Note the time. This is a hook that runs before each forward pass; a copy of the model keeps it."""
    STAMPS.append((time.perf_counter(), time.process_time(), CALLS[0], torch.is_grad_enabled()))


def timed(work: Callable[[], Any], *, counted: bool = False) -> tuple[Any, list[Stamp]]:
    """Do some work; return its result and the stamps of its start, its forward passes and its end.

    ``counted`` also counts the calls of functions, in Python and from Python into C. That takes time of its own.
    """
    gc.collect()
    STAMPS.clear()
    CALLS[0] = 0
    sys.setprofile(_count if counted else None)
    stamp()
    result = work()
    stamp()
    sys.setprofile(None)
    return result, list(STAMPS)


def _count(frame: Any, event: str, argument: Any) -> None:
    """Count calls: a profiler."""
    if event.endswith("call"):
        CALLS[0] += 1


def unlearn(model: nn.Module, split: Any, method: str, *, guarded: bool, **settings: Any) -> Any:
    """Call `unweave.unlearn` on the CPU, whether it takes ``device=`` or ``compute=``, ``limits=`` or ``guard=``."""
    names = inspect.signature(uw.unlearn).parameters
    options: dict[str, Any] = {} if guarded else {"guard" if "guard" in names else "limits": None}
    if "progress" in names:
        options["progress"] = False
    if method == "two-stage":
        options["profile"] = "released"
    return uw.unlearn(model, split, method, **_on_cpu(names), **options, **settings)


def evaluate(model: nn.Module, train: Any, test: Any) -> Any:
    """Call `unweave.evaluate` on the CPU."""
    return uw.evaluate(model, train=train, test=test, **_on_cpu(inspect.signature(uw.evaluate).parameters))


def _on_cpu(names: Any) -> dict[str, Any]:
    """Return the argument that chooses the CPU, under the name that this version has for it."""
    return {"compute": uw.Compute(device="cpu")} if "compute" in names else {"device": "cpu"}


def in_steps(stamps: list[Stamp], steps: int) -> list[Interval]:
    """Return the intervals from the first step's first pass with gradient to the last step's: ``steps`` − 1 steps.

    >>> in_steps([(0, 0, 0, True), (1, 1, 5, False), (2, 2, 7, True), (4, 3, 9, True), (9, 5, 9, True)], steps=2)
    [(2, 1, 2)]
    """
    places = [place for place, (*_, grad) in enumerate(stamps[1:-1], start=1) if grad]
    passes, rest = divmod(len(places), steps)
    if rest:
        raise ValueError(f"{len(places)} passes with gradient do not divide into {steps} steps.")
    return intervals(stamps[places[0] : places[-passes] + 1])


def intervals(stamps: list[Stamp]) -> list[Interval]:
    """Return wall seconds, processor seconds and calls between neighbouring stamps."""
    return [(later[0] - one[0], later[1] - one[1], later[2] - one[2]) for one, later in pairwise(stamps)]


def find_benchmark(name: str) -> Any:
    """Return a benchmark of this source tree."""
    for module in MODULES:
        try:
            return importlib.import_module(module).find_benchmark(name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
    raise ModuleNotFoundError(f"find_benchmark stands in none of {', '.join(MODULES)}.")


class Rounds:
    """Rounds of measuring: every part once, from the same model."""

    def __init__(self) -> None:
        self.benchmark = find_benchmark("digits")
        self.task = self.benchmark.load()
        self.model = self.benchmark.initial(0)
        self.model.register_forward_pre_hook(stamp)
        self.digest = hashlib.blake2b(digest_size=16)
        self.counted = False

    def take(self, counted: bool) -> dict[str, Any]:
        """Run every part; return its intervals, the number of steps in them, and a digest of all resulting weights."""
        self.digest, self.counted = hashlib.blake2b(digest_size=16), counted
        parts = {
            "stage1": self._steps("two-stage", **{**BRIEFLY, "stage2_epochs": 0}),
            "stage2": self._steps("two-stage", **{**BRIEFLY, "stage1_epochs": 0}),
            "fine_tuning": self._steps("ft", epochs=FINE_TUNING_EPOCHS),
            "evaluation": self._whole(lambda: evaluate(self.model, self.task.train, self.task.test)),
            "run": self._whole(lambda: self._unlearn("two-stage", guarded=True, **BRIEFLY)),
        }
        return {"parts": parts, "digest": self.digest.hexdigest()}

    def _unlearn(self, method: str, *, guarded: bool, **changed: Any) -> Any:
        values = self.benchmark.settings_for(self.benchmark.method(method), None)
        result = unlearn(self.model, self.task.train, method, guarded=guarded, **{**values, **changed})
        for tensor in result.model.state_dict().values():
            self.digest.update(tensor.numpy().tobytes())
        return result

    def _steps(self, method: str, **changed: Any) -> dict[str, Any]:
        result, stamps = timed(lambda: self._unlearn(method, guarded=False, **changed), counted=self.counted)
        steps = len(result.history.rows)
        return {"count": steps - 1, "intervals": in_steps(stamps, steps)}

    def _whole(self, work: Callable[[], Any]) -> dict[str, Any]:
        _, stamps = timed(work, counted=self.counted)
        return {"count": 1, "intervals": intervals(stamps)}


def serve(take: Callable[[bool], dict[str, Any]]) -> None:
    """Answer each line of standard input, ``time`` or ``count``, with a round. Other output goes to standard error.

    Every side of a comparison runs on the same core.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", uw.RunWarning)
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(take(line.strip() == "count")), file=answers, flush=True)


if __name__ == "__main__":
    serve(Rounds().take)
