"""One file a benchmark: its data, model, training recipe, split, and the settings of every method on it."""

from __future__ import annotations

from unweave.benchmarks.benchmark import Benchmark, Task
from unweave.benchmarks.digits import DIGITS
from unweave.errors import unknown

__all__ = ["BENCHMARKS", "Benchmark", "Task", "find_benchmark"]

BENCHMARKS: dict[str, Benchmark] = {"digits": DIGITS}


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name."""
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]
