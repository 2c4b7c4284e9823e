"""One file a benchmark: its data, model, training recipe, split, and the settings of every method on it."""

from unweave.benchmarks.benchmark import Benchmark, Definition, Task
from unweave.benchmarks.catalogue import BENCHMARKS, find_benchmark

__all__ = ["BENCHMARKS", "Benchmark", "Definition", "Task", "find_benchmark"]
