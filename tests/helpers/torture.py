"""The kill matrix: runs are killed with SIGKILL at random places and resumed, and must end like one that was not.

    make torture                                      # every method on the digits, into results/torture
    python -m tests.helpers.torture --small --methods gdr     # a small network on made-up data, in seconds

A place is a step, a write (before the data is synced to disk) or a rename, counted over the whole run, so that files
are left half-written and checkpoints without their second file. A third of the runs is killed twice. Everything that
a run leaves is compared to the bit; of its scores, all but time and memory.

Every run is a process of its own, forked from one that has only imported things.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import scipy.stats  # what a run imports late is imported here once, for all processes
import sklearn.linear_model
import sklearn.metrics
import sklearn.model_selection
import sklearn.svm
import torch
import torch._dynamo
from torch import nn

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from unweave import Checkpoints, Compute, Split, load_weights
from unweave.engine import History
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import find_method
from unweave.runs import unfinished
from unweave.storage import provenance, read_configuration, write_whole

MODULE = "tests.helpers.torture"
CLOCK = ("seconds", "peak_memory_bytes", "process_memory_bytes")
NO_LIMIT = {
    "adjacent_accuracy_drop": 1.0,
    "remote_accuracy_drop": 1.0,
    "adjacent_loss_rise": 0.0,
    "remote_loss_rise": 0.0,
    "forget_loss_rise": 0.0,
    "share": 0.1,
}
KINDS = ("step", "write", "rename")
LATE = (scipy.stats, sklearn.linear_model, sklearn.metrics, sklearn.model_selection, sklearn.svm, torch._dynamo)


@dataclass(frozen=True)
class Job:
    """What is run: a model, its data, and the settings of every method."""

    model: Callable[[], nn.Module]
    initial: Callable[[], nn.Module]
    train: Split
    test: Split | None
    settings: Callable[[str], dict]

    def run(self, method: str, out: Path) -> None:
        """Run a method, or go on with it where it was stopped."""
        unlearn_with(
            self.model(),
            self.train,
            method,
            out=out,
            resume=unfinished(out).exists(),
            test=self.test,
            initial=self.initial,
            guard=NO_LIMIT,
            compute=Compute("cpu"),
            callbacks=[Checkpoints(steps=3)],
            **self.settings(method),
        )


def small_job() -> Job:
    """Dropout and batch statistics make every step depend on random numbers and buffers."""

    def model() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

    generator = torch.Generator().manual_seed(2)
    data = torch.randn(60, 5, generator=generator), torch.arange(60) // 20
    split = Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))

    def settings(method: str) -> dict:
        names = find_method(method).configure().to_dict()
        values = {"learning_rate": 1e-2, "batch_size": 4, "epochs": 3, "normalisation": "train", "adjacent_batch": 4}
        values |= {"stage1_learning_rate": 1e-2, "stage1_remote_batch": 10, "stage2_adjacent_batch": 4}
        return {name: value for name, value in values.items() if name in names}

    return Job(model, model, split, split, settings)


def digits_job(folder: Path) -> Job:
    """Take the embedded benchmark with its own settings; a few epochs less of what takes long."""
    benchmark = find_benchmark("digits")
    task, file = benchmark.load(), folder / "original.safetensors"

    def train() -> None:
        from unweave.runs import to_bytes

        write_whole(file, to_bytes(benchmark.train(task, seed=0, device="cpu", progress=False).state_dict()))

    require(in_a_process(train), "training failed")

    def settings(method: str) -> dict:
        values = dict(benchmark.settings_for(find_method(method), None))
        shorter = {name: min(value, 5) for name, value in values.items() if name.endswith("epochs")}
        return values | shorter

    def original() -> nn.Module:
        return load_weights(benchmark.initial(0), file).eval()

    return Job(original, lambda: benchmark.initial(0), task.train, task.test, settings)


# Processes, and how they end


def in_a_process(work: Callable[[], None]) -> int:
    """Fork, do the work there, and return 0, or the signal that ended it as a negative number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@contextmanager
def watched(kill: tuple[str, int] | None, counts: dict[str, int]) -> Iterator[None]:
    """Count steps, writes and renames, and kill this process at one of them."""

    def note(kind: str) -> None:
        counts[kind] += 1
        if kill == (kind, counts[kind]):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def noting(kind: str, taken: Callable) -> Callable:
        def call(*arguments, **more):
            note(kind)
            return taken(*arguments, **more)

        return call

    History.add = noting("step", History.add)  # type: ignore[method-assign]
    os.fsync = noting("write", os.fsync)
    Path.replace = noting("rename", Path.replace)  # type: ignore[method-assign]
    yield


def run_once(job: Job, method: str, out: Path, kill: tuple[str, int] | None = None) -> tuple[int, dict[str, int]]:
    """Run or resume in a process; return how it ended and what it counted."""
    counts = dict.fromkeys(KINDS, 0)
    tally = out.with_name("tally.json")

    def work() -> None:
        with watched(kill, counts):
            job.run(method, out)
        tally.write_text(json.dumps(counts))

    code = in_a_process(work)
    return code, json.loads(tally.read_text()) if code == 0 else {}


# The matrix


def results_of(folder: Path) -> dict[str, bytes]:
    """Return what a run left, without what depends on the clock."""
    scores = json.loads((folder / "scores.json").read_text())
    scores["cost"] = {name: value for name, value in scores["cost"].items() if name not in CLOCK}
    return {
        "weights": (folder / "model.safetensors").read_bytes(),
        "history": (folder / "history.jsonl").read_bytes(),
        "scores": json.dumps(scores, sort_keys=True).encode(),
        "configuration": json.dumps(read_configuration(folder)).encode(),
    }


def torture(job: Job, method: str, kills: int, folder: Path, chance: random.Random) -> Iterator[dict]:
    """Yield one row for every killed run of a method."""
    code, counts = run_once(job, method, folder / "whole")
    require(code, f"{method} failed without being killed")
    whole = results_of(folder / "whole")
    for number in range(kills):
        kind = KINDS[number % len(KINDS)]
        places = [(kind, chance.randint(1, counts[kind]))]
        if number % 3 == 2:
            other = chance.choice(KINDS)
            places.append((other, chance.randint(1, max(1, counts[other] // 2))))
        out, killed = folder / f"killed-{number}", 0
        for place in places:
            code, _ = run_once(job, method, out, kill=place)
            killed += code == -signal.SIGKILL
            require(0 if code in (0, -signal.SIGKILL) else code, f"{method} ended otherwise at {place}")
            if code == 0:
                break
        if not out.exists():
            require(run_once(job, method, out)[0], f"{method} cannot be resumed after {places}")
        found = results_of(out)
        yield {
            "method": method,
            "killed_at": " then ".join(f"{kind} {count}" for kind, count in places),
            "of": " / ".join(f"{counts[kind]} {kind}s" for kind in KINDS),
            "kills": killed,
            **{name: found[name] == whole[name] for name in whole},
        }
        shutil.rmtree(out)


def require(code: int, words: str) -> None:
    """Stop where a process did not end well."""
    if code:
        sys.exit(f"{words} (exit code {code})")


def main() -> None:
    """Run the matrix, print it, and say at the end whether every run was the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a small network on made-up data")
    parser.add_argument("--methods", default="all", help="names joined by commas")
    parser.add_argument("--kills", type=int, default=9, help="killed runs of every method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in ON_ANYTHING if name != "original"]
    chosen = names if options.methods == "all" else options.methods.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        job = small_job() if options.small else digits_job(Path(place))
        for method in chosen:
            folder = Path(place) / method
            folder.mkdir()
            chance = random.Random(f"{options.seed} {method}")
            for row in torture(job, method, options.kills, folder, chance):
                rows.append(row)
                same = all(row[name] for name in ("weights", "history", "scores", "configuration"))
                print(f"{'same ' if same else 'OTHER'} {method:<10} killed at {row['killed_at']}", flush=True)
            shutil.rmtree(folder)
    other = [row for row in rows if not all(row[name] for name in ("weights", "history", "scores", "configuration"))]
    if options.out:
        write_results(options.out, rows, options)
    print(f"{len(rows)} killed runs of {len(chosen)} methods, {sum(row['kills'] for row in rows)} kills: ", end="")
    sys.exit(f"{len(other)} ended otherwise") if other else print("all ended like one that was not killed")


def write_results(folder: Path, rows: list[dict], options: argparse.Namespace) -> None:
    """Write the matrix and where it comes from."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / "results.parquet")
    about = provenance(torch.device("cpu")) | {
        "command": f"python -m {MODULE} --kills {options.kills} --seed {options.seed} --out results/torture",
        "benchmark": "made-up data" if options.small else "digits",
        "killed_runs": len(rows),
    }
    write_whole(folder / "provenance.json", (json.dumps(about, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
