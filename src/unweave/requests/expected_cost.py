"""What a run will probably cost on this device: a few steps of every phase are taken on a copy, and counted up."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

from torch import nn

from unweave.api import Split
from unweave.engine import Compute, Phase, Workbench
from unweave.errors import RunError, UsageError
from unweave.methods import Method
from unweave.runtime import own_random_numbers

TRIED = 3  # steps of each phase; the first also pays for what is done once


@dataclass(frozen=True)
class ExpectedCost:
    """The expected cost of a run.

    Attributes:
        seconds: Time of unlearning on this device, without reading the data and measuring. None: not known.
        sample_gradients: Samples that are differentiated. None: not known.
        steps: Steps by phase.
        device: The device.
        unknown: Why the cost is not known; empty if it is.
        may_end_early: Whether the method decides on its way when it is done. Then this is the most that it takes.
    """

    seconds: float | None
    sample_gradients: int | None
    steps: dict[str, int]
    device: str
    unknown: str = ""
    may_end_early: bool = False

    def __add__(self, later: ExpectedCost) -> ExpectedCost:
        """Return the cost of both, one after the other.

        >>> print(ExpectedCost(2.0, 100, {"retrain": 5}, "cpu") + ExpectedCost(3.0, 50, {"descend": 9}, "cpu"))
        Expected cost on cpu: about 5 s and 150 sample gradients (retrain 5 steps, descend 9 steps), not counting the \
reading and measuring of the data.
        """
        if unknown := self.unknown or later.unknown:
            return ExpectedCost(None, None, {}, self.device, unknown)
        seconds, gradients = (self.seconds or 0) + (later.seconds or 0), (self.sample_gradients or 0)
        steps = {**self.steps, **later.steps}
        early = self.may_end_early or later.may_end_early
        return ExpectedCost(seconds, gradients + (later.sample_gradients or 0), steps, self.device, may_end_early=early)

    def __str__(self) -> str:
        if self.seconds is None or self.sample_gradients is None:
            return f"Expected cost: not known. {self.unknown}"
        steps = ", ".join(f"{name} {count:,} steps" for name, count in self.steps.items())
        most = "at most " if self.may_end_early else ""
        return (
            f"Expected cost on {self.device}: {most}about {_time(self.seconds)} and {self.sample_gradients:,} sample "
            f"gradients ({steps}), not counting the reading and measuring of the data."
        )


def expected_cost(model: nn.Module, split: Split, method: Method, *, compute: Compute, seed: int = 0) -> ExpectedCost:
    """Return what unlearning will probably cost.

    Args:
        model: The model. It is not changed.
        split: The split.
        method: The method with its settings.
        compute: Where and how to compute.
        seed: The seed of the run.

    Returns:
        The expected cost. It is not known for a method that needs more than a model and data to start.

    >>> import torch
    >>> from unweave.methods import find_method
    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> method = find_method("ga").configure({"learning_rate": 0.1, "epochs": 5})
    >>> split = Split(data, forget=[0, 1], adjacent=[2, 3])
    >>> expected_cost(nn.Linear(4, 2), split, method, compute=Compute("cpu")).sample_gradients
    10
    """
    where = compute.check()
    try:
        phases = method.phases()
        bench = Workbench(
            copy.deepcopy(model).to(where),
            split,
            device=where,
            seed=seed,
            precision=compute.precision,
            compile="off",
            micro_batch=compute.micro_batch,
            max_memory=compute.max_memory,
            keep_data=compute.keep_data,
        )
        seconds, gradients, steps = 0.0, 0.0, dict[str, int]()
        with own_random_numbers(where), bench.working():
            for phase in phases:
                took, differentiated = _tried(phase, bench)
                steps[phase.name] = phase.steps
                seconds, gradients = seconds + took, gradients + differentiated
    except (UsageError, RunError) as error:
        return ExpectedCost(None, None, {}, str(where), str(error))
    early = any(type(phase).is_over is not Phase.is_over for phase in phases)
    return ExpectedCost(seconds, round(gradients), steps, str(where), may_end_early=early)


def _tried(phase: Phase, bench: Workbench) -> tuple[float, float]:
    """Return the seconds and the sample gradients that a phase takes, from its first steps."""
    begun, counted = time.perf_counter(), bench.cost.sample_gradients
    phase.prepare(bench)
    phase.begin()
    ends, counts = [time.perf_counter()], [bench.cost.sample_gradients]
    for number in range(min(TRIED, phase.steps)):
        for value in phase.step(number).values():
            float(value)  # waits for the device
        ends.append(time.perf_counter())
        counts.append(bench.cost.sample_gradients)
    at_first, first = ends[0] - begun, counts[0] - counted
    if len(ends) == 1:
        return at_first, first
    since = 1 if len(ends) > 2 else 0  # the first step also compiles, reads and allocates
    left = len(ends) - 1 - since
    return (
        at_first + (ends[-1] - ends[since]) / left * phase.steps,
        first + (counts[-1] - counts[0]) / (len(ends) - 1) * phase.steps,
    )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
