"""What the kill matrix runs beside the methods: a study, a tuning, and a request to forget."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna.samplers  # what work imports late is imported here once, for all processes
import optuna.storages
import pandas as pd
import safetensors.torch
import torch
from torch import nn

from tests.helpers.own_files import write_table
from tests.helpers.studies import table
from tests.helpers.tiny import SOURCE, tiny
from unweave import Request, UsageError
from unweave.lab.study import plan, run_study
from unweave.lab.tuning import tune
from unweave.requests import is_finished
from unweave.runs import unfinished
from unweave.storage import read_configuration

LATE = (optuna.samplers, optuna.storages)
CLOCK = ("seconds", "peak_memory_bytes", "process_memory_bytes")


@dataclass(frozen=True)
class Work:
    """Some work on a folder: begin or resume it, tell whether it is finished, and say what it left."""

    name: str
    run: Callable[[Path], object]
    finished: Callable[[Path], bool]
    next: Callable[[Path], object]  # the next command on the folder, after the work is finished
    results: Callable[[Path], dict[str, bytes]]

    def left(self, out: Path) -> dict[str, bytes]:
        """Return the results, and the names of all files in and beside the folder after the next command."""
        with contextlib.suppress(UsageError):
            self.next(out)
        found = [path for start in out.parent.glob(f"{out.name}*") for path in (start, *start.rglob("*"))]
        names = sorted(str(path.relative_to(out.parent)).removeprefix(out.name) for path in found)
        return {**self.results(out), "files": "\n".join(names).encode()}


def run_results(folder: Path) -> dict[str, bytes]:
    """Return what a run left, without what depends on the clock."""
    return {
        "weights": _every(folder, "*.safetensors"),
        "history": (folder / "history.jsonl").read_bytes(),
        "scores": _timeless(folder / "scores.json"),
        "configuration": json.dumps(read_configuration(folder)).encode(),
    }


def _timeless(file: Path) -> bytes:
    scores = json.loads(file.read_text())
    if "cost" in scores:
        scores["cost"] = {name: value for name, value in scores["cost"].items() if name not in CLOCK}
    return json.dumps(scores, sort_keys=True).encode()


def _every(folder: Path, pattern: str, read: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    """Return the content of all files of a kind, with their names."""
    return b"\n".join(str(file.relative_to(folder)).encode() + read(file) for file in sorted(folder.rglob(pattern)))


def study_work() -> Work:
    """Run methods with every kind of state on the tiny benchmark, with two seeds."""
    benchmark = tiny()
    cells = plan(["original", "retrain", "two-stage", "salun"], seeds=2, benchmark=benchmark)

    def results(folder: Path) -> dict[str, bytes]:
        return {
            "weights": _every(folder, "*.safetensors"),
            "history": _every(folder, "history.jsonl"),
            "scores": table(folder).to_csv().encode() + _every(folder, "against-retrain.json", _timeless),
            "configuration": (folder / "study.json").read_bytes(),
        }

    def run(folder: Path) -> object:
        return run_study(benchmark, cells, folder, device="cpu")

    return Work("study", run, lambda _: False, run, results)


def tuning_work() -> Work:
    """Tune two methods, also with the sampler that learns from the trials before."""

    def results(folder: Path) -> dict[str, bytes]:
        best = json.loads((folder / "best.json").read_text())
        kept = {"methods": {name: dict(entry) for name, entry in best["methods"].items()}, "trials": best["trials"]}
        for entry in kept["methods"].values():
            entry["cost"] = {name: value for name, value in entry["cost"].items() if name != "seconds"}
        return {
            "weights": _every(folder, "*.safetensors"),
            "history": pd.read_csv(folder / "trials.csv").drop(columns="seconds").to_csv().encode(),
            "scores": json.dumps(kept, sort_keys=True).encode(),
            "configuration": (folder / "tuning.json").read_bytes(),
        }

    def run(folder: Path) -> object:
        return tune(SOURCE, folder, methods=["ga", "ssd"], trials=8, device="cpu")

    return Work("tuning", run, lambda _: False, run, results)


def small_network() -> nn.Module:
    """Return the network that the request's weights fit."""
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))


def request_work(folder: Path) -> Work:
    """Ask for what `unweave unlearn` asks for: weights, a table, and what to forget in words of SQL."""
    rows = [{"id": row, "x": row % 3 + row / 99, "y": 1.0 - row % 3, "label": row % 3} for row in range(90)]
    data = write_table(folder / "numbers.parquet", rows)
    torch.manual_seed(0)
    safetensors.torch.save_file(small_network().state_dict(), folder / "mine.safetensors")
    asked: dict[str, Any] = {
        "model": f"{small_network.__module__}:{small_network.__name__}",
        "weights": str(folder / "mine.safetensors"),
        "train": str(data),
        "input": ["x", "y"],
        "forget": "id < 9",
        "adjacent": "id >= 9 AND id < 30",
        "method": "two-stage",
        "settings": {"stage1_epochs": 3, "stage2_epochs": 4},
        "no_guard": True,
        "device": "cpu",
        "checkpoint_steps": 3,
    }

    def request(out: Path) -> Request:
        return Request(**asked, out=str(out))

    return Work(
        "request",
        lambda out: request(out).run(resume=True),
        lambda out: out.exists() and not unfinished(out).exists(),
        lambda out: is_finished(request(out)),
        run_results,
    )


def differing_bits(one: bytes, other: bytes) -> int:
    """Return how many bits differ; those that only one has count as different."""
    length = max(len(one), len(other))
    pair = (int.from_bytes(content.ljust(length, b"\0"), "big") for content in (one, other))
    first, second = pair
    return (first ^ second).bit_count() + (8 * abs(len(one) - len(other)) if first == second else 0)
