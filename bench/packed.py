"""Measure how many workers share a device best, and how near that comes to the ideal, as `--workers auto` does.

python -m bench.packed [--benchmark cifar100-resnet18] [--data FOLDER] [--option size=64] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from functools import partial
from pathlib import Path

from bench import measure
from unweave.cli.options import chosen_options
from unweave.engine import Compute
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import packed, shared_gpu
from unweave.runtime import pick_device


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--benchmark", default="cifar100-resnet18")
    parser.add_argument("--data", help="folder with the data sets")
    parser.add_argument("--option", action="append", default=[], help="option of the benchmark")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for packed.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    computing = Compute(device=words.device)
    options = chosen_options(words.option, words.small)
    with shared_gpu(computing):
        together = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
        found = packed(partial(find_benchmark, words.benchmark, data=words.data, options=options), computing)
    print(f"{words.benchmark}{', with MPS' if together else ''}: {found}")
    for count, rate in found.rates.items():
        print(f"{count} workers: {rate:.1f} steps/s, {rate / found.rates[1] / count:.0%} of the ideal")
    content = {"benchmark": words.benchmark, "options": options, "mps": together, **dataclasses.asdict(found)}
    measure.write(words.out, "packed", content, pick_device(words.device))


if __name__ == "__main__":
    main()
