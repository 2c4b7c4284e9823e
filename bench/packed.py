"""How many workers share a device best, as `--workers auto` finds it, and how fast they tune all methods.

    python -m bench.packed --data FOLDER --option size=64 [--tune FOLDER --seconds 200] [--out FOLDER]

Without ``--tune`` only the first is measured, with ``--workers`` only the second. The workers tune all methods of the
benchmark for that many seconds in a folder; the same command resumes. What all trials would take is extrapolated: each
method's mean time of a finished trial, with other trials beside it, counts for all its trials, and the workers share
the sum. Starting them and training the original come on top once. That workers are idle at the end is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import measure
from unweave.cli.options import chosen_options
from unweave.engine import Compute
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import Packing, packed, shared_gpu
from unweave.lab.tuning import Tuning, tune
from unweave.lab.tuning.searches import Tried
from unweave.runtime import pick_device


def rates(found: Packing) -> list[dict[str, float]]:
    """Return the steps per second of every number of workers, beside one worker's times their number.

    >>> rates(Packing(2, {1: 10.0, 2: 15.0}, ""))[1]
    {'workers': 2, 'steps_per_second': 15.0, 'of_the_ideal': 0.75}
    """
    one = found.rates[1]
    return [
        {"workers": count, "steps_per_second": rate, "of_the_ideal": rate / one / count}
        for count, rate in found.rates.items()
    ]


def whole(tried: Sequence[Tried], methods: Sequence[str], *, trials: int, workers: int) -> dict[str, Any]:
    """Return what all trials of these methods would take, from the finished ones.

    >>> from types import SimpleNamespace as Some
    >>> some = [Some(method="ft", seconds=10.0, error=""), Some(method="ga", seconds=2.0, error="")]
    >>> whole(some, ["ft", "ga", "scrub"], trials=20, workers=4)["seconds_of_all_trials"]
    60.0
    """
    seconds = {name: [one.seconds for one in tried if one.method == name and not one.error] for name in methods}
    rows = {
        name: {"finished": len(some), "mean_seconds": statistics.fmean(some)} for name, some in seconds.items() if some
    }
    return {
        "methods": rows,
        "methods_without_a_finished_trial": [name for name in methods if name not in rows],
        "seconds_of_all_trials": trials * sum(row["mean_seconds"] for row in rows.values()) / workers,
    }


def tuned(words: argparse.Namespace, source: Any, workers: int) -> dict[str, Any]:
    """Tune all methods for some seconds; return how fast that went, and what all trials would take."""
    begun = time.time()
    tuning: Tuning = tune(
        source, words.tune, trials=words.trials, workers=workers, device=words.device, time_limit=words.seconds
    )
    spent = time.time() - begun
    every = [one for search in tuning.searches.values() for one in search.tried()]
    failed = [f"{one.method} {one.trial}: {one.error[:200]}" for one in every if one.error]
    busy = sum(one.seconds for one in every)
    start = spent - busy / workers if every else spent  # no more than this, if the workers were never idle later
    found = whole(every, list(tuning.searches), trials=words.trials, workers=workers)
    return {
        "trials": words.trials,
        "workers": workers,
        "seconds": spent,
        "finished_trials": len(every),
        "failed_trials": failed,
        "seconds_of_finished_trials": busy,
        "start_seconds": start,
        "trials_per_second": len(every) / (busy / workers) if busy else None,
        **found,
        "whole_seconds": start + found["seconds_of_all_trials"],
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--benchmark", default="cifar100-resnet18")
    parser.add_argument("--data", help="folder with the data sets")
    parser.add_argument("--option", action="append", default=[], help="option of the benchmark")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tune", type=Path, help="folder of a tuning")
    parser.add_argument("--seconds", type=float, default=200.0, help="after which no trial of the tuning starts")
    parser.add_argument("--trials", type=int, default=20, help="of each method")
    parser.add_argument(
        "--workers", type=int, help="of the tuning, instead of measuring how many share the device best"
    )
    parser.add_argument("--out", type=Path, help="folder for packed.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    computing, where = Compute(device=words.device), pick_device(words.device)
    options = chosen_options(words.option, words.small)
    source = partial(find_benchmark, words.benchmark, data=words.data, options=options)
    content: dict[str, Any] = {"benchmark": words.benchmark, "options": options}
    with shared_gpu(computing):
        content["mps"] = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
        if words.workers is None:
            measured(source, computing, content)
            measure.write(words.out, "packed", content, where)
        if words.tune:
            content["tuning"] = tuned(words, source, words.workers or content["workers"])
            show(content["tuning"])
            measure.write(words.out, "packed", content, where)


def measured(source: Any, computing: Compute, content: dict[str, Any]) -> None:
    """Measure how many workers share the device best, and print it."""
    begun = time.perf_counter()
    found = packed(source, computing)
    content |= dataclasses.asdict(found) | {"rows": rates(found), "seconds": time.perf_counter() - begun}
    print(f"{content['benchmark']}{', with MPS' if content['mps'] else ''}, {content['seconds']:.0f} s: {found}")
    for row in content["rows"]:
        print(
            f"{row['workers']} workers: {row['steps_per_second']:.1f} steps/s, {row['of_the_ideal']:.0%} of the ideal",
            flush=True,
        )


def show(row: dict[str, Any]) -> None:
    """Print how a tuning went."""
    for name, one in row["methods"].items():
        print(f"{name:<14}{one['finished']:>4} trials of {one['mean_seconds']:6.1f} s")
    for line in row["failed_trials"]:
        print(f"failed: {line}")
    missing = ", ".join(row["methods_without_a_finished_trial"])
    print(
        f"{row['finished_trials']} trials in {row['seconds']:.0f} s with {row['workers']} workers, "
        f"{row['start_seconds']:.0f} s of it to start; {row['trials']} trials of each method would take "
        f"{row['whole_seconds'] / 60:.1f} minutes" + (f" without {missing}" if missing else "")
    )


if __name__ == "__main__":
    main()
