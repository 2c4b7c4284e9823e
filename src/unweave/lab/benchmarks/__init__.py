"""Benchmarks, one file each: data, model, training recipe, split, and the settings of every method."""

from unweave.lab.benchmarks.asking import ANSWER_SCORES, ANSWERS, ask_all, keep_answers
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings
from unweave.lab.benchmarks.catalogue import BENCHMARKS, find_benchmark
from unweave.lab.benchmarks.own_task import OwnTask, call_task, is_own
from unweave.lab.benchmarks.tuned_profiles import FILE, FORMAT, SCHEMA, profile_of_folder, profile_of_goal

__all__ = [
    "ANSWERS",
    "ANSWER_SCORES",
    "BENCHMARKS",
    "FILE",
    "FORMAT",
    "SCHEMA",
    "Benchmark",
    "BenchmarkTask",
    "Definition",
    "MethodSettings",
    "OwnTask",
    "ask_all",
    "call_task",
    "find_benchmark",
    "is_own",
    "keep_answers",
    "profile_of_folder",
    "profile_of_goal",
]
