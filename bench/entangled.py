"""Strong entanglement: one original for many classes, each forgotten in turn by the default and by another method.

    python -m bench.entangled --data DATA --out results/strangers/entangled.jsonl --models FOLDER
    python -m bench.entangled --size 64 --forget man,castle --seeds 0,1 …
    python -m bench.entangled --benchmark tinyimagenet-vit …

Without ``--forget`` these are the development classes of the protocol on CIFAR-100. The original does not depend on the
class: it is trained once for a seed and kept in the folder of models. Methods run with the benchmark's defaults,
`adaptive` without a setting. A row is written after every run, and what is in the file already is not run again. With
``--minutes``, no run begins that would probably not end in time.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import safetensors.torch
import torch
from torch import Tensor, nn

import unweave as uw
from unweave.data import SUBSETS
from unweave.evaluation import predict
from unweave.lab.benchmarks import Benchmark, BenchmarkTask, find_benchmark
from unweave.lab.protocol import PROTOCOL
from unweave.methods import make_method
from unweave.runs import load_weights
from unweave.runtime import pick_device
from unweave.storage import provenance, write_whole

# The three that go first, where time is short, then the others of the protocol.
CLASSES = ("man", "hamster", "castle", "oak_tree", "raccoon", "crocodile", "dolphin", "clock")
METHODS = ("adaptive", "unweave")
TRAINING = "training"

Known: TypeAlias = "dict[str, Tensor]"  # of training and test data, which samples are recognised


@dataclass(frozen=True)
class Original:
    """A trained model, what training took, and which samples it recognises."""

    model: nn.Module
    seconds: float
    gradients: int
    known: Known


class Clock:
    """Knows how long runs took, and whether another one fits into the time."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes
        self.seconds: dict[str, float] = {}

    def allows(self, what: str) -> bool:
        """Return whether a run like the longest of its kind so far would end in time."""
        return time.monotonic() + self.seconds.get(what, 0.0) < self.end

    def took(self, what: str, seconds: float) -> None:
        """Note how long a run took."""
        self.seconds[what] = max(seconds, self.seconds.get(what, 0.0))


def rows(words: argparse.Namespace, known: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the row of every run that is not known and fits into the time, seed by seed, class by class."""
    clock, done = Clock(words.minutes), {_cell(row) for row in known}
    for seed in words.seeds:
        original = None
        for forget in words.forget:
            cells = [(words.benchmark, words.size, forget, seed, method) for method in words.methods]
            if all(cell in done for cell in cells):
                continue
            if original is None and not clock.allows(TRAINING):
                return
            benchmark = find_benchmark(words.benchmark, data=words.data, options=_options(words, forget))
            task = benchmark.load()
            original = original or _original(words, benchmark, task, seed)
            before = accuracies(original.known, task)
            for cell, name in zip(cells, words.methods, strict=True):
                if cell not in done and clock.allows(name):
                    row = run(benchmark, task, original, name, seed=seed, compute=words.compute)
                    clock.took(name, row["seconds"])
                    yield {
                        "benchmark": cell[0],
                        "size": cell[1],
                        "forget": forget,
                        "seed": seed,
                        "before": before,
                    } | row


def run(
    benchmark: Benchmark, task: BenchmarkTask, original: Original, name: str, *, seed: int, compute: uw.Compute
) -> dict[str, Any]:
    """Run a method with its defaults, and return what it reached and what it cost; an error is a row too."""
    method = make_method(name, benchmark.settings_for(benchmark.method(name), None))
    row: dict[str, Any] = {"method": name, "training": original.gradients, "training_seconds": original.seconds}
    begun = time.perf_counter()
    result = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", uw.RunWarning)
        try:
            result = uw.unlearn(
                original.model,
                task.train,
                method,
                seed=seed,
                compute=compute,
                callbacks=[uw.Progress(show=False)],
            )
        except uw.RunError as error:
            row |= {"error": type(error).__name__, "message": str(error)}
    row |= {"seconds": round(time.perf_counter() - begun, 1)}
    row["warnings"] = [str(warning.message) for warning in caught if issubclass(warning.category, uw.RunWarning)]
    if result is not None:
        gradients = result.cost.sample_gradients
        row |= {"error": None, "gradients": gradients, "share": round(gradients / original.gradients, 4)}
        row |= {"steps": len(result.history), "after": accuracies(recognised(result.model, task, compute), task)}
    return row


def recognised(model: nn.Module, task: BenchmarkTask, compute: uw.Compute) -> Known:
    """Return which samples of training and test data a model recognises."""
    found = {}
    for name, split in _parts(task).items():
        told = predict(model, split.samples, torch.arange(len(split.samples)), **compute.looking)
        found[name] = told.logits.argmax(-1) == told.labels
    return found


def accuracies(known: Known, task: BenchmarkTask) -> dict[str, float]:
    """Return the six accuracies."""
    return {
        f"{name} {subset}": known[name][split.rows(subset)].double().mean().item()
        for name, split in _parts(task).items()
        for subset in SUBSETS
    }


def _parts(task: BenchmarkTask) -> dict[str, uw.Split]:
    if task.test is None:
        raise uw.UsageError("The benchmark has no test data, which this comparison needs.")
    return {"train": task.train, "test": task.test}


def _original(words: argparse.Namespace, benchmark: Benchmark, task: BenchmarkTask, seed: int) -> Original:
    """Return the original of a seed: kept, or trained now and kept."""
    gradients = benchmark.recipe.epochs * len(task.train.samples)
    size = "" if words.size is None else f".{words.size}"
    file = words.models / f"{words.benchmark}{size}{'.small' if words.small else ''}.seed-{seed}.safetensors"
    about = file.with_suffix(".json")
    if file.exists() and about.exists():
        said = json.loads(about.read_text(encoding="utf-8"))
        model = load_weights(benchmark.initial(seed), file)
        return Original(model, said["seconds"], gradients, recognised(model, task, words.compute))
    begun = time.perf_counter()
    model = benchmark.train(task, seed=seed, progress=False, **words.compute.working)
    seconds = round(time.perf_counter() - begun, 1)
    print(f"original of seed {seed}: {seconds} s", flush=True)
    words.models.mkdir(parents=True, exist_ok=True)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    write_whole(file, safetensors.torch.save(weights))
    write_whole(about, (json.dumps({"seconds": seconds}) + "\n").encode())
    return Original(model, seconds, gradients, recognised(model, task, words.compute))


def _options(words: argparse.Namespace, forget: str | None) -> dict[str, Any]:
    given = {"size": words.size, "forget": forget, "small": words.small or None}
    return {name: value for name, value in given.items() if value is not None}


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("benchmark", "size", "forget", "seed", "method"))


def line_of(row: dict[str, Any]) -> str:
    """Return a row in words."""
    head = f"{row['forget'] or '':<12}{row['seed']:>2}  {row['method']:<10}{row['seconds']:>7.1f} s  "
    if row["error"]:
        return f"{head}{row['error']}: {row['message']}"
    changes = " | ".join(
        f"{name} {100 * row['before'][name]:.1f} → {100 * row['after'][name]:.1f}" for name in row["after"]
    )
    return f"{head}share {row['share']:.2f} | {changes}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, print it, and append it to the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.entangled", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--benchmark", default=PROTOCOL.benchmark)
    parser.add_argument("--size", type=int, help="pixels, where the benchmark has this option; 224 on CIFAR-100")
    parser.add_argument("--forget", help="classes, with commas; on CIFAR-100 the protocol's if not given")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas")
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--data", help="folder of data sets")
    parser.add_argument("--device")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--small", action="store_true", help="little data and a tiny model, to rehearse")
    parser.add_argument("--models", type=Path, required=True, help="folder of trained originals")
    parser.add_argument("--out", type=Path, required=True, help="file of rows")
    words = parser.parse_args(arguments)
    of_protocol = words.benchmark == PROTOCOL.benchmark
    words.size = words.size or (224 if of_protocol else None)
    words.forget = words.forget.split(",") if words.forget else CLASSES if of_protocol else [None]
    words.methods = words.methods.split(",")
    words.seeds = [int(seed) for seed in words.seeds.split(",")]
    words.compute = uw.Compute(words.device, precision=words.precision)
    words.out.parent.mkdir(parents=True, exist_ok=True)
    there = words.out.read_text(encoding="utf-8").splitlines() if words.out.exists() else []
    about = provenance(pick_device(words.device))
    about["command"] = " ".join(["python -m bench.entangled", *map(shlex.quote, sys.argv[1:])])
    with words.out.with_suffix(".provenance.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(about) + "\n")
    for row in rows(words, [json.loads(line) for line in there]):
        with words.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row | {"commit": about["commit"]}) + "\n")
        print(line_of(row), flush=True)


if __name__ == "__main__":
    main()
