"""Does speed cost quality? Two-stage on CIFAR-100 as it runs by default, and in plain float32.

    python -m bench.quality --data DATA --originals STUDY [--seeds 2] [--out FOLDER] [--small]

Both start from the same originals (of a study of cifar100-resnet18) with the same seeds. The default on CUDA: bfloat16
passes, channels last, compiled where it pays. Plain: float32 without TF32, uncompiled. Prints the six accuracies.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from bench import measure
from unweave import Compute, evaluate, unlearn
from unweave.data import SUBSETS
from unweave.lab.benchmarks import find_benchmark
from unweave.runs import load_weights
from unweave.runtime import pick_device

BENCHMARK, METHOD = "cifar100-resnet18", "two-stage"
WAYS: dict[str, dict[str, Any]] = {"default": {}, "plain": {"precision": "float32", "compile": "off"}}
CELLS = [(part, subset) for part in ("train", "test") for subset in SUBSETS]


def main() -> None:
    """Run both ways, seed by seed; write the file after every run, so that finished runs are kept."""
    parser = argparse.ArgumentParser(description="Does speed cost quality?")
    parser.add_argument("--data", required=True, help="folder with the data sets")
    parser.add_argument("--originals", type=Path, required=True, help="folder of a study of cifar100-resnet18")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="folder for quality.json")
    parser.add_argument("--device")
    parser.add_argument("--small", action="store_true", help="little data and a tiny model")
    words = parser.parse_args()
    device = pick_device(words.device)
    benchmark = find_benchmark(BENCHMARK, data=words.data, options={"small": True} if words.small else {})
    method = benchmark.method(METHOD)
    task, runs = benchmark.load(), []
    print(f"{'':14}" + "".join(f"{part} {subset}".rjust(16) for part, subset in CELLS) + f"{'seconds':>10}")
    for seed in range(words.seeds):
        weights = words.originals / "models" / f"original.seed-{seed}.safetensors"
        original = load_weights(benchmark.initial(seed), weights).eval()
        for way, engine in WAYS.items():
            settings = benchmark.settings_for(method, None)
            how = {"seed": seed, "profile": "released", "compute": Compute(words.device)}
            done = unlearn(original, task.train, METHOD, **how, **engine, **settings)
            scores = evaluate(done.model, task.train, task.test, questions=(), compute=Compute(words.device))
            accuracies = {f"{part} {subset}": scores[part][subset]["accuracy"] for part, subset in CELLS}
            runs.append({"way": way, "seed": seed, "seconds": done.cost.seconds, **accuracies})
            print(_line(f"{way} {seed}", runs[-1:]), flush=True)
            measure.write(words.out, "quality", {"benchmark": benchmark.title, "method": METHOD, "runs": runs}, device)
    for way in WAYS:
        print(_line(way, [run for run in runs if run["way"] == way]))


def _line(name: str, runs: list[dict[str, Any]]) -> str:
    """Return a line of the table: the means over some runs."""
    means = [100 * statistics.fmean(run[f"{part} {subset}"] for run in runs) for part, subset in CELLS]
    seconds = statistics.fmean(run["seconds"] for run in runs)
    return f"{name:14}" + "".join(f"{mean:16.2f}" for mean in means) + f"{seconds:10.1f}"


if __name__ == "__main__":
    main()
