"""What we tried for the method unweave, on the digits with three seeds: `python tools/tried.py TABLE --out FOLDER`.

Tables: ``erase`` (settings and variants at the goal erase), ``references`` (estimates of a retrained model's forget
losses, and what comes of aiming at them; every digit is forgotten in turn), ``dial`` (between the goals).
FOLDER/TABLE.csv has one row for each run, FOLDER/provenance.json where they come from. What is there is not run again:
the same command goes on where it was stopped. ``--show`` prints the tables of docs/what-we-tried.md.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import json
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unweave import Result, RunError, RunWarning, Split, evaluate, unlearn
from unweave.benchmarks import Benchmark, Task, find_benchmark
from unweave.engine import Workbench
from unweave.evaluation import predict
from unweave.losses import squared_wasserstein
from unweave.methods import Method
from unweave.methods.reference import reference_losses
from unweave.methods.unweave import UNWEAVE, Constrained
from unweave.projection import Gradient, remove_span
from unweave.provenance import provenance
from unweave.split import SUBSETS

CPU = torch.device("cpu")
SEEDS, HELD_OUT, DIALS = range(3), 0.2, (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ACCURACIES = tuple(f"{part}_{subset}" for part in ("train", "test") for subset in SUBSETS)
COLUMNS = ("variant", "forget", "seed", *ACCURACIES, "bound", "tow_split", "w2", "guess_w2", "gradients", "error")
Row = dict[str, Any]


class TwoDirections(Constrained):
    """Also leave the mean forget loss as it is, to first order."""

    def _distance(self) -> tuple[Tensor, Gradient]:
        distance, uphill = super()._distance()
        count = len(self.forget.rows)
        mean = self.bench.gradient(self.bench.losses(batch).sum() / count for batch in self.forget.in_order())
        # Orthogonal to the first direction, so that removing that afterwards does not bring this back.
        self.velocity = remove_span(self.velocity, [remove_span(mean, [uphill])], in_place=True)
        return distance, uphill


class Experiment:
    """A benchmark with one seed: its original, and ways to unlearn from it."""

    def __init__(self, benchmark: Benchmark, task: Task, seed: int, original: nn.Module) -> None:
        self.benchmark, self.task, self.seed, self.original = benchmark, task, seed, original
        self.common: dict[str, Any] = {"device": "cpu", "progress": False, "limits": None}

    def retrain(self, seed: int, epochs: int | None = None) -> Result:
        """Train without the forget data, wholly or for some epochs."""
        recipe = self.benchmark.recipe.to_dict() | ({"epochs": epochs} if epochs else {})
        begin = {"seed": seed, "initial": lambda: self.benchmark.initial(seed)}
        return unlearn(self.original, self.task.train, "retrain", **begin, **self.common, **recipe)

    def run(
        self,
        method: str | Method = "unweave",
        *,
        split: Split | None = None,
        model: nn.Module | None = None,
        **values: Any,
    ) -> Result:
        """Unlearn by the benchmark's settings and these."""
        name = method if isinstance(method, str) else "unweave"
        own = next(iter(self.benchmark.settings.get(name, {"": {}}).values()))
        arguments = {"seed": self.seed, **self.common, **own, **values}
        return unlearn(model or self.original, split or self.task.train, method, **arguments)

    def losses(self, model: nn.Module, split: Split, *subsets: str) -> Tensor:
        """Return a model's losses."""
        return predict(model, split.samples, split.rows(*subsets), device=CPU).losses.double()

    def scores(self, result: Result, *, retrained: list[nn.Module] | None = None) -> Row:
        """Return a row of the table."""
        asked = {"reference": retrained, "questions": ("reference",), "resamples": 0, "device": "cpu"}
        found = evaluate(result.model, self.task.train, self.task.test, original=self.original, target=10.0, **asked)
        row: Row = {f"{part}_{s}": found[part][s]["accuracy"] for part in ("train", "test") for s in SUBSETS}
        row |= {"bound": found["train"]["forget"].get("forget_bound"), "gradients": result.cost.sample_gradients}
        if retrained:
            row |= {"tow_split": found["model"]["tow_split"], "w2": found["train"]["forget"]["loss_wasserstein"]}
        return row


def shifted(split: Split) -> Split:
    """Return the split with the forget images shifted by a pixel to each side too: forget what was never seen."""
    images, labels = split.samples.dataset.data
    gone = torch.from_numpy(split.forget)
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))
    more = [images[gone].roll(move, dims=(-2, -1)) for move in moves]
    data = torch.cat([images, *more]), torch.cat([labels, *[labels[gone]] * len(moves)])
    extra = np.arange(len(images), len(data[0]))
    return Split(data, np.concatenate([split.forget, extra]), split.adjacent, split.remote)


def erase_variants(e: Experiment) -> dict[str, Callable[[], Any]]:
    """Return what is tried at the goal erase."""
    both = dataclasses.replace(UNWEAVE, phases=lambda settings: [TwoDirections(settings)])

    def after_stage1(**values: Any) -> Any:
        first = e.run("two-stage", stage2_epochs=0)
        result = e.run(
            model=first.model,
            goal="retrain",
            reference=e.losses(first.model, e.task.train, "forget"),
            **values,
        )
        result.cost.sample_gradients += first.cost.sample_gradients
        return result

    tried: dict[str, Callable[[], Any]] = {
        "original": lambda: e.run("original"),
        "two-stage, as released": lambda: e.run("two-stage"),
        "stage 1, then tangent steps only": lambda: after_stage1(restore=1e-9),
        "stage 1, then W2 to the losses after it, restored": after_stage1,
        "unweave": e.run,
        "unweave, two directions": lambda: e.run(both),
        "unweave, shifted forget images too": lambda: e.run(split=shifted(e.task.train)),
    }
    axes = {
        "restore": (0.1, 0.25, 1.0),
        "reach": (0.002, 0.01, 0.02, 0.05),
        "learning_rate": (1e-3, 2e-3, 6e-3, 1e-2),
        "remote_weight": (0.0, 1.0, 10.0),
        "momentum": (0.0,),
        "epochs": (6, 24),
    }
    for name, values in axes.items():
        for value in values:
            tried[f"unweave, {name} {value:g}"] = lambda name=name, value=value: e.run(**{name: value})
    return tried


def erase() -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Settings and variants, forgetting the 9."""
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    for seed in SEEDS:
        e = Experiment(benchmark, task, seed, benchmark.train(task, seed=seed, device="cpu", progress=False))
        for variant, run in erase_variants(e).items():
            yield {"variant": variant, "forget": 9, "seed": seed}, lambda e=e, run=run: e.scores(run())


def references() -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Estimates of a retrained model's forget losses; a fifth of the training part is held out."""
    for seed in SEEDS:
        original = None
        for digit in range(10):
            benchmark = find_benchmark("digits", options={"forget": digit})
            task, held = carve(benchmark.load())
            original = original or benchmark.train(task, seed=seed, device="cpu", progress=False)
            for variant, run in reference_variants(Experiment(benchmark, task, seed, original), held).items():
                yield {"variant": variant, "forget": digit, "seed": seed}, run


def reference_variants(e: Experiment, held: Split) -> dict[str, Callable[[], Row]]:
    """Return every estimate with what comes of aiming at it, and what that is to be measured by."""
    train = e.task.train
    retrained = cache(lambda: [e.retrain(e.seed).model, e.retrain(e.seed + 100).model])
    brief = cache(lambda epochs: e.retrain(e.seed + 200, epochs))

    def aim(guess: Any, *, cost: int = 0) -> Row:
        bench = Workbench(e.original, train, device=CPU, reference=guess)
        losses = reference_losses(bench, bench.batches("forget", size=512))
        row = e.scores(e.run(goal="retrain", reference=losses), retrained=retrained())
        apart = [squared_wasserstein(losses, e.losses(model, train, "forget")).sqrt() for model in retrained()]
        return row | {"guess_w2": float(torch.stack(apart).mean()), "gradients": row["gradients"] + cost}

    def relapse() -> Row:
        back = e.run("ft", model=e.run().model, optimizer="adam", learning_rate=1e-3, momentum=0.0, epochs=3)
        return aim(e.losses(back.model, train, "forget"))

    def briefly(epochs: int) -> Row:
        return aim(brief(epochs).model, cost=brief(epochs).cost.sample_gradients)

    def scores(run: Callable[[], Any]) -> Row:
        return e.scores(run(), retrained=retrained())

    return {
        "retrained with another seed": lambda: scores(lambda: e.retrain(e.seed + 300)),
        "original": lambda: scores(lambda: e.run("original")),
        "two-stage": lambda: scores(lambda: e.run("two-stage")),
        "fine-tuning": lambda: scores(lambda: e.run("ft")),
        "unweave, erase": lambda: scores(e.run),
        "aim at held-out adjacent data": lambda: aim(held),
        "aim at held-out forget data": lambda: aim(e.losses(e.original, held, "forget")),
        "aim at both of these": lambda: aim(e.losses(e.original, held, "forget", "adjacent")),
        "aim at what comes back after erase and fine-tuning": relapse,
        **{f"aim at a training of {n} of 15 epochs": partial(briefly, n) for n in (1, 2, 3, 5)},
        "the same, 3 epochs, its sureness left as it is": lambda: aim(e.losses(brief(3).model, train, "forget")),
        "aim at a retrained model's losses": lambda: aim(e.losses(e.retrain(e.seed + 300).model, train, "forget")),
    }


def dial() -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Between the goals, for a digit that retraining hardly recognises and one that it mostly does."""
    for digit, seed in itertools.product((9, 3), SEEDS):
        benchmark = find_benchmark("digits", options={"forget": digit})
        task = benchmark.load()
        e = Experiment(benchmark, task, seed, benchmark.train(task, seed=seed, device="cpu", progress=False))
        retrained = [e.retrain(seed).model]
        brief = benchmark.train_briefly(e.original, task.train, seed=seed, device="cpu")
        for value in DIALS:
            run = partial(e.run, goal="retrain", dial=value, reference=lambda brief=brief: brief)
            cell = {"variant": f"forget {digit}, dial {value:g}", "forget": digit, "seed": seed}
            yield cell, lambda e=e, run=run, retrained=retrained: e.scores(run(), retrained=retrained)


TABLES = {"erase": erase, "references": references, "dial": dial}


def carve(task: Task) -> tuple[Task, Split]:
    """Return the task without a fifth of each training digit, and that fifth."""
    fine, generator = np.array(task.fine), np.random.default_rng(0)
    held = np.zeros(len(fine), dtype=bool)
    for digit in range(10):
        rows = generator.permutation(np.flatnonzero(fine == digit))
        held[rows[: round(HELD_OUT * len(rows))]] = True
    parts = [
        Split(task.train.samples, *(task.train[s][held[task.train[s]] == side] for s in SUBSETS)) for side in (0, 1)
    ]
    return dataclasses.replace(task, train=parts[0]), parts[1]


def complete(table: str, folder: Path) -> None:
    """Run what is not in the table yet."""
    file = folder / f"{table}.csv"
    rows = read(file)
    done = {(row["variant"], int(row["forget"]), int(row["seed"])) for row in rows}
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, COLUMNS)
        if not rows:
            writer.writeheader()
        for cell, run in TABLES[table]():
            if tuple(cell.values()) in done:
                continue
            try:
                row = run()
            except RunError as error:
                row = {"error": " ".join(str(error).split())}
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in (cell | row).items()})
            opened.flush()


def read(file: Path) -> list[Row]:
    """Return the rows of a table, none where it is not there."""
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def show(table: str, folder: Path) -> str:
    """Return a table in Markdown: means over seeds and digits, with the deviation where it says something."""
    heads = ["train f / a / r", "test f / a / r"] + (
        ["bound"] if table == "erase" else ["ToW split", "W₂ to retrained"]
    )
    heads += (["W₂ of the estimate"] if table == "references" else []) + ["sample gradients"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    groups: dict[str, list[Row]] = {}
    for row in read(folder / f"{table}.csv"):
        groups.setdefault(row["variant"], []).append(row)
    for variant, rows in groups.items():
        good = [row for row in rows if not row["error"]]
        failed = f" ({len(rows) - len(good)} of {len(rows)} diverged)" if len(good) < len(rows) else ""
        if not good:
            lines.append(f"| {variant}{failed} |" + " |" * len(heads))
            continue
        cells = [
            " / ".join(_mean(good, f"{part}_{subset}", percent=True) for subset in SUBSETS)
            for part in ("train", "test")
        ]
        names = ["bound"] if table == "erase" else ["tow_split", "w2"]
        names += ["guess_w2"] if table == "references" else []
        cells += [_mean(good, name, percent=name == "bound") for name in names]
        cells.append(f"{statistics.mean(float(row['gradients']) for row in good):,.0f}")
        lines.append(f"| {variant}{failed} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(rows: list[Row], name: str, *, percent: bool) -> str:
    values = [float(row[name]) for row in rows if row[name] != ""]
    if not values:
        return "–"
    mean = statistics.mean(values)
    return f"{100 * mean:.1f}" if percent else f"{mean:.2f}"


def main() -> None:
    """Complete a table, or show all of them."""
    parser = argparse.ArgumentParser(description="What we tried for the method unweave.")
    parser.add_argument("table", nargs="?", choices=TABLES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--show", action="store_true", help="print the tables in Markdown, and run nothing")
    words = parser.parse_args()
    if words.show:
        print("\n".join(show(table, words.out) for table in TABLES if (words.out / f"{table}.csv").exists()))
        return
    warnings.simplefilter("ignore", RunWarning)  # what was hardly forgotten is in the table
    torch.set_num_threads(1)
    words.out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python tools/tried.py", *sys.argv[1:]])
    file = words.out / "provenance.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for table in [words.table] if words.table else TABLES:
        complete(table, words.out)
        known[table] = provenance(CPU) | {"command": command, "seeds": list(SEEDS)}
        file.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
