"""Choose the settings of every method on a benchmark, fairly: `python tools/sweep.py BENCHMARK --out FOLDER`.

Every method gets a small grid around its values on the benchmark (``GRIDS``). A fifth of the training part is held out:
the model is trained without it, and it judges. The rule: the highest harmonic mean of what was forgotten and what was
kept (1 − forget accuracy, adjacent accuracy, remote accuracy) on the held-out data. The test part is never read, and
the seed is none of those that results are reported for.

FOLDER/sweep.csv has one row for each setting tried, FOLDER/best.json the best of every method, FOLDER/provenance.json
the command, commit, hardware, versions and date. What is done is not run again: stop it and start it anew, or give it
``--seconds``.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from torch import nn

from unweave import RunError, Split, evaluate, unlearn
from unweave.benchmarks import Benchmark, Task, find_benchmark
from unweave.data import pick_device
from unweave.methods import find_method
from unweave.provenance import provenance
from unweave.split import SUBSETS

SEED, HELD_OUT = 100, 0.2
COLUMNS = ("method", "settings", "score", *SUBSETS, "seconds", "error")
Axis = Callable[[Any], list[Any]]


def times(*factors: float) -> Axis:
    """Return an axis of multiples of the benchmark's own value."""
    return lambda base: [type(base)(f"{base * factor:.3g}") for factor in factors]


def of(*values: Any) -> Axis:
    """Return an axis of these values."""
    return lambda base: list(values)


GRIDS: dict[str, dict[str, Axis]] = {
    "ft": {"learning_rate": times(0.1, 0.3, 1, 3, 10)},
    "ga": {"learning_rate": times(0.1, 0.3, 1, 3, 10, 30), "epochs": times(1, 2)},
    "l1-sparse": {"learning_rate": times(0.1, 0.3, 1), "sparsity": times(0.1, 0.3, 1, 3)},
    "scrub": {"learning_rate": times(0.01, 0.03, 0.1, 0.3, 1), "weight_decay": of(0.0), "forget_epochs": of(2, 5)},
    "ssd": {"selection": of(1.0, 2.0, 5.0, 10.0, 25.0, 50.0), "dampening": of(0.1, 0.3, 1.0)},
    "salun": {"learning_rate": times(0.1, 0.3, 1, 3, 10)},
    "delete": {"learning_rate": times(0.3, 1, 3, 10, 30, 100)},
    "gdr": {"learning_rate": times(0.1, 0.3, 1, 3, 10), "epochs": times(1, 3)},
    "munba": {"learning_rate": times(0.01, 0.03, 0.1, 0.3, 1, 3)},
    "two-stage": {"stage1_learning_rate": times(1, 4, 16, 64), "stage2_learning_rate": times(0.25, 1, 4, 16, 64)},
    "unweave": {"learning_rate": times(0.1, 0.3, 1, 3, 10)},
}


def carve(split: Split) -> tuple[Split, Split]:
    """Return the split without a fifth of each subset, and that fifth."""
    generator = np.random.default_rng(SEED)
    held, kept = {}, {}
    for subset in SUBSETS:
        rows = generator.permutation(split[subset])
        count = round(HELD_OUT * len(rows))
        held[subset], kept[subset] = rows[:count], rows[count:]
    return Split(split.samples, **kept), Split(split.samples, **held)


def trained(benchmark: Benchmark, task: Task, folder: Path, device: str | None) -> nn.Module:
    """Return the model trained without the held-out data, trained now if it was not before."""
    file = folder / "original.safetensors"
    if not file.exists():
        model = benchmark.train(task, seed=SEED, device=device)
        safetensors.torch.save_file({name: t.clone() for name, t in model.state_dict().items()}, file)
    model = benchmark.initial(SEED)
    model.load_state_dict(safetensors.torch.load_file(file))
    return model.eval()


def plans(benchmark: Benchmark, methods: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every method with every setting of its grid: what is swept, and nothing else."""
    for name in methods:
        method = find_method(name)
        base = method.configure(benchmark.settings_for(method, None)).to_dict()
        axes = {setting: axis(base[setting]) for setting, axis in GRIDS[name].items()}
        for values in itertools.product(*axes.values()):
            yield name, dict(zip(axes, values, strict=True))


def try_out(
    benchmark: Benchmark, original: nn.Module, task: Task, name: str, swept: dict[str, Any], device: str | None
) -> dict[str, Any]:
    """Run one setting and judge it."""
    method, started = find_method(name), time.perf_counter()
    settings = {**benchmark.settings_for(method, None), **swept}
    row: dict[str, Any] = {"method": name, "settings": json.dumps(swept, sort_keys=True)}
    try:
        result = unlearn(original, task.train, method=method, seed=SEED, device=device, limits=None, **settings)
    except RunError as error:
        return row | {"error": " ".join(str(error).split())}
    scores = evaluate(result.model, task.train, task.test, questions=(), device=device)["test"]
    found = {subset: scores[subset]["accuracy"] for subset in SUBSETS}
    row["score"] = statistics.harmonic_mean([1 - found["forget"], found["adjacent"], found["remote"]])
    return row | found | {"seconds": round(time.perf_counter() - started, 1)}


def write_best(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Keep and print the best of every method."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.get("score") not in (None, "") and float(row["score"]) > best.get(row["method"], {"score": -1})["score"]:
            found = {subset: float(row[subset]) for subset in SUBSETS}
            best[row["method"]] = {
                "score": float(row["score"]),
                **found,
                "settings": json.loads(row["settings"]),
            }
    (folder / "best.json").write_text(json.dumps(best, indent=2) + "\n")
    for name, row in best.items():
        accuracies = " ".join(f"{subset} {100 * row[subset]:.1f}" for subset in SUBSETS)
        print(f"{name:<10} {row['score']:.3f}  {accuracies}  {row['settings']}")


def main() -> None:
    """Try every setting that was not tried before; print the best."""
    parser = argparse.ArgumentParser(description="Choose the settings of every method on a benchmark.")
    parser.add_argument("benchmark")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--methods", default=",".join(GRIDS), help="joined by commas")
    parser.add_argument("--device")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after that time")
    words = parser.parse_args()

    started = time.perf_counter()
    options = dict(pair.split("=", 1) for pair in words.option)
    benchmark = find_benchmark(words.benchmark, data=words.data, options=options)
    words.out.mkdir(parents=True, exist_ok=True)
    whole = benchmark.load()
    kept, held = carve(whole.train)
    task = Task(train=kept, test=held, label_names=whole.label_names)
    original = trained(benchmark, task, words.out, words.device)
    command = " ".join(["python tools/sweep.py", *sys.argv[1:]])
    about = provenance(pick_device(words.device)) | benchmark.about() | {"command": command, "seed": SEED}
    (words.out / "provenance.json").write_text(json.dumps(about, indent=2) + "\n")

    table = words.out / "sweep.csv"
    is_new = not table.exists()
    rows = [] if is_new else list(csv.DictReader(table.read_text().splitlines()))
    done = {(row["method"], row["settings"]) for row in rows}
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        for name, swept in plans(benchmark, words.methods.split(",")):
            if (name, json.dumps(swept, sort_keys=True)) in done:
                continue
            if time.perf_counter() - started > words.seconds:
                print(f"Stopped after {words.seconds:g} s; the same command goes on.")
                break
            rows.append(try_out(benchmark, original, task, name, swept, words.device))
            writer.writerow(rows[-1])
            file.flush()
    write_best(words.out, rows)


if __name__ == "__main__":
    main()
