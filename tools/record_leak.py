"""Measure what a deletion record tells somebody who wants to know which samples were forgotten.

    python tools/record_leak.py --out results/record-leak

The adversary has the training data, both models, and the record, and knows all forget samples but one. How many of the
other samples may be the last one? A sample may be if a record about it would be the same. Next to the record stand what
the models tell without one (the rank of the sample by how much its loss rose) and what a record of version 1 told, with
exact accuracies and losses. `docs/record.md` shows the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from unweave import Compute, Split, unlearn
from unweave.evaluation import predict
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import find_method
from unweave.record.rounding import FEWEST, rounded, step_of
from unweave.storage import provenance

SIZES = (1, 2, 10, 49, 50, 100)
SUBSETS = ("forget", "adjacent", "remote")
NAMES = ("forget", "seed", "candidates", "left_counts", "left_exact", "left_record", "rank_models", "rank_with_record")
HEADINGS = (
    "forget samples",
    "candidates",
    "exact numbers leave",
    "the counts leave",
    "the record leaves",
    "most bits of accuracies",
    "rank by the models",
    "and with the record",
)
CPU = Compute("cpu")


def main() -> None:
    """Measure, and write a row for every run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="runs of every size")
    parser.add_argument("--method", default="two-stage")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in measure(options.seeds, options.method):
        rows.append(row)
        print(row, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "leak.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, NAMES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    about = provenance(torch.device("cpu")) | {"command": f"python {shlex.join(sys.argv)}", "benchmark": "digits"}
    (options.out / "provenance.json").write_text(json.dumps(about, indent=2) + "\n")
    print(table(rows))


def measure(seeds: int, method: str) -> Iterator[dict[str, int]]:
    """Yield one row for every run: a random part of one class is forgotten."""
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    data, labels = task.train.samples, task.train.samples.labels().numpy()
    for seed in range(seeds):
        original = benchmark.train(task, seed=seed, device="cpu", progress=False)
        before = answers(original, data)
        chance = np.random.default_rng(seed)
        label = chance.choice(np.unique(labels))
        for size in SIZES:
            forget = np.sort(chance.choice(np.flatnonzero(labels == label), size, replace=False))
            split = Split(data, forget, np.setdiff1d(np.flatnonzero(labels == label), forget))
            first = next(iter(find_method(method).profiles))
            model = unlearn(original, split, method, profile=first, guard=None, compute=CPU, seed=seed).model
            yield {"forget": size, "seed": seed, **looked_at(before, answers(model, data), labels, forget)}


def answers(model: torch.nn.Module, data: object) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each sample is recognised, and its loss."""
    found = predict(model, data, torch.arange(len(data)), device="cpu")  # type: ignore[arg-type]
    return found.correct.double().numpy(), found.losses.double().numpy()


def looked_at(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray], labels: np.ndarray, forget: np.ndarray
) -> dict[str, int]:
    """Count the candidates for the last forget sample that each kind of knowledge leaves."""
    known, last = forget[:-1], forget[-1]
    candidates = np.setdiff1d(np.arange(len(labels)), known)
    told = {row: numbers(before, after, labels, np.append(known, row)) for row in candidates}
    truth = told[last]
    left = {
        kind: [row for row in candidates if np.allclose(told[row][kind], truth[kind], rtol=0, atol=1e-12)]
        for kind in ("counts", "exact", "record")
    }
    rise = after[1] - before[1]
    return {
        "candidates": len(candidates),
        **{f"left_{kind}": len(rows) for kind, rows in left.items()},
        "rank_models": int((rise[candidates] >= rise[last]).sum()),
        "rank_with_record": int((rise[left["record"]] >= rise[last]).sum()),
    }


def numbers(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray], labels: np.ndarray, forget: np.ndarray
) -> dict[str, list[float]]:
    """Return the numbers of a record about these forget samples: its counts, all as exact ones, all as published."""
    is_forget = np.isin(np.arange(len(labels)), forget)
    is_adjacent = np.isin(labels, labels[forget]) & ~is_forget
    counts, exact, record = [], [], []
    for rows in (is_forget, is_adjacent, ~is_forget & ~is_adjacent):
        count = int(rows.sum())
        means = [float(values[rows].mean()) if count else 0.0 for values in (*before, *after)]
        counts.append(count)
        exact += [count, *means]
        right = (means[0], means[2])
        record += [count, *(rounded(value, step_of(count)) for value in right if count >= FEWEST)]
    return {"counts": counts, "exact": exact, "record": padded(record)}


def padded(found: list[float]) -> list[float]:
    """Return the numbers with -1 in the place of those withheld, so that records of all sizes compare."""
    return found + [-1.0] * (3 * len(SUBSETS) - len(found))


def table(rows: list[dict[str, int]]) -> str:
    """Return the table of `docs/record.md`: means over the runs of every size."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for size in sorted({int(row["forget"]) for row in rows}):
        some = [{name: int(value) for name, value in row.items()} for row in rows if int(row["forget"]) == size]
        mean = {name: fmean(row[name] for row in some) for name in NAMES}
        bits = max(math.log2(row["left_counts"] / row["left_record"]) for row in some)
        cells = [f"{mean[name]:.0f}" for name in ("candidates", "left_exact", "left_counts", "left_record")]
        ranks = [f"{mean[name]:.0f}" for name in ("rank_models", "rank_with_record")]
        lines.append(f"| {size} | {' | '.join(cells)} | {bits:.1f} | {' | '.join(ranks)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
