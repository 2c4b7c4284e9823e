"""The kill matrix: runs are killed with SIGKILL at random places and resumed, and must end like one that was not.

    make torture                                      # every method, a study, a tuning, a request, on made-up data
    make torture KILLS=1000 JOBS=16                   # the same, with so many kills in all, by so many processes
    python -m tests.helpers.torture --digits --work gdr         # the digits with the settings of the benchmark

A place is a step, a write (before the data is synced to disk), a rename, or the moment after one, counted over the
whole run, so that files are left half-written, checkpoints without their second file, and finished runs with what they
no longer need. A third of the runs is killed twice. Everything that a run leaves is compared to the bit; of its scores,
all but time and memory. After the next command no file may lie there that an uninterrupted run does not leave.

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
from functools import cache, partial
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
from tests.helpers.fitting import ON_TOKENS
from tests.helpers.torture_work import (
    Work,
    differing_bits,
    request_work,
    run_results,
    study_work,
    tuning_work,
)
from unweave import Checkpoints, Compute, Split, answers, load_weights
from unweave.engine import History
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import METHODS, find_method
from unweave.runs import check_folder, unfinished
from unweave.storage import provenance, write_whole

MODULE = "tests.helpers.torture"
NO_LIMIT = {
    "adjacent_accuracy_drop": 1.0,
    "remote_accuracy_drop": 1.0,
    "adjacent_loss_rise": 0.0,
    "remote_loss_rise": 0.0,
    "forget_loss_rise": 0.0,
    "share": 0.1,
}
KINDS = ("step", "write", "rename", "renamed")
ROWS = "rows.jsonl"
PARTS = ("weights", "history", "scores", "configuration", "files")
LATE = (scipy.stats, sklearn.linear_model, sklearn.metrics, sklearn.model_selection, sklearn.svm, torch._dynamo)


@dataclass(frozen=True)
class Job:
    """What is run: a model, its data, and the settings of every method."""

    model: Callable[[], nn.Module]
    initial: Callable[[], nn.Module]
    train: Split
    test: Split | None
    settings: Callable[[str], dict]

    def work(self, method: str) -> Work:
        """Return a method as work for the matrix."""

        def check(out: Path) -> None:
            check_folder(out, resume=False)

        return Work(method, lambda out: self.run(method, out), Path.exists, check, run_results)

    def run(self, method: str, out: Path) -> None:
        """Run a method, or resume it where it was stopped."""
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


def language_job() -> Job:
    """A tiny causal model with dropout, and questions of which some are forgotten: for methods that need tokens."""
    from tests.helpers.answers import WIDE, alternatives, chatty
    from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer

    model = partial(llama, WIDE, attention_dropout=0.1)
    forget = range(0, 12, 2)
    data = answers(rows(), tokenizer(), template=TEMPLATE)
    split = Split(data, forget=forget, adjacent=range(1, 12, 2), remote=range(12, len(rows())))
    given = {
        "dpo": {"alternatives": alternatives(forget)},
        "altpo": {"alternatives": alternatives(forget)},
        "idk-dpo": {"tokenizer": chatty()},
        "rmu": {"layer": 0},
    }

    def settings(method: str) -> dict:
        length = {"pdu": {"fixed_epochs": 1}}
        return {"epochs": 4, "batch_size": 3, **length.get(method, {}), **given.get(method, {})}

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
        shorter = {name: min(value, 2) for name, value in values.items() if name.endswith("epochs")}
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

    def noting_both(taken: Callable) -> Callable:
        def call(*arguments, **more):
            note("rename")
            found = taken(*arguments, **more)
            note("renamed")
            return found

        return call

    History.add = noting("step", History.add)  # type: ignore[method-assign]
    os.fsync = noting("write", os.fsync)
    Path.replace = noting_both(Path.replace)  # type: ignore[method-assign]
    Path.rename = noting_both(Path.rename)  # type: ignore[method-assign]
    yield


def run_once(work: Work, out: Path, kill: tuple[str, int] | None = None) -> tuple[int, dict[str, int]]:
    """Run or resume in a process; return how it ended and what it counted."""
    counts = dict.fromkeys(KINDS, 0)
    tally = out.parent / "tally.json"

    def go() -> None:
        with watched(kill, counts):
            work.run(out)
        tally.write_text(json.dumps(counts))

    code = in_a_process(go)
    return code, json.loads(tally.read_text()) if code == 0 else {}


def left(work: Work, out: Path) -> dict[str, bytes]:
    """Return what some work left once the next command was there."""
    found = out.parent / "left"
    found.mkdir(exist_ok=True)

    def look() -> None:
        for name, content in work.left(out).items():
            (found / name).write_bytes(content)

    require(in_a_process(look), f"what {work.name} left cannot be read")
    return {name: (found / name).read_bytes() for name in PARTS}


# The matrix


def works(options: argparse.Namespace, folder: Path) -> list[Work]:
    """Return the work that was asked for: methods, a study, a tuning, a request."""
    others = {"study": study_work, "tuning": tuning_work, "request": lambda: request_work(folder)}
    methods = [name for name in METHODS if name != "original"]
    asked = [*methods, *others] if options.work == "all" else options.work.split(",")
    on_anything = cache(partial(digits_job, folder) if options.digits else small_job)
    on_tokens = cache(language_job)

    def find(name: str) -> Work:
        return others[name]() if name in others else (on_tokens if name in ON_TOKENS else on_anything)().work(name)

    return [find(name) for name in asked]


Place = tuple[str, int]


def drawn(counts: dict[str, int], kills: int, chance: random.Random) -> list[list[Place]]:
    """Return where so many runs are killed, each once or twice."""
    found = []
    for number in range(kills):
        kind = KINDS[number % len(KINDS)]
        places = [(kind, counts[kind] if kind == "renamed" and number % 8 == 3 else chance.randint(1, counts[kind]))]
        if number % 3 == 2:
            other = chance.choice(KINDS)
            places.append((other, chance.randint(1, max(1, counts[other] // 2))))
        found.append(places)
    return found


def torture(work: Work, kills: int, folder: Path, chance: random.Random, *, share: Place = (0, 1)) -> Iterator[dict]:
    """Yield one row for every killed run of some work; the first of three shares, (0, 3), has every third of them."""
    code, counts = run_once(work, folder / "run")
    require(code, f"{work.name} failed without being killed")
    whole = left(work, folder / "run")
    for number, places in list(enumerate(drawn(counts, kills, chance)))[share[0] :: share[1]]:
        home = folder / f"killed-{number}"
        home.mkdir()
        out, killed = home / "run", 0
        for place in places:
            code, _ = run_once(work, out, kill=place)
            killed += code == -signal.SIGKILL
            require(0 if code in (0, -signal.SIGKILL) else code, f"{work.name} ended otherwise at {place}")
            if code == 0 or work.finished(out):
                break
        if not work.finished(out):
            require(run_once(work, out)[0], f"{work.name} cannot be resumed after {places}")
        found = left(work, out)
        yield {
            "method": work.name,
            "number": number,
            "killed_at": " then ".join(f"{kind} {count}" for kind, count in places),
            "of": " / ".join(f"{counts[kind]} {kind}s" for kind in KINDS[:3]),
            "kills": killed,
            **{name: found[name] == whole[name] for name in PARTS},
            "differing_bits": sum(differing_bits(found[name], whole[name]) for name in PARTS),
        }
        shutil.rmtree(home)


def torture_all(options: argparse.Namespace, place: Path) -> tuple[list[dict], list[str]]:
    """Run the matrix in forked processes, as many at once as asked for; return its rows and the failures."""
    chosen = works(options, place)
    runs = 9 if options.kills is None else -(-options.kills // len(chosen))
    waiting = [(work, part) for part in range(options.jobs) for work in chosen][::-1]
    running: dict[int, tuple[Work, Path]] = {}
    rows: list[dict] = []
    failed: list[str] = []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            work, part = waiting.pop()
            folder = place / f"{work.name}-{part}"
            folder.mkdir()
            child = os.fork()
            if child == 0:
                _be_share(work, runs, folder, part, options)
            running[child] = work, folder
        child, status = os.wait()
        work, folder = running.pop(child)
        rows += [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
        if os.waitstatus_to_exitcode(status):
            failed.append(work.name)
        shutil.rmtree(folder)
        if options.out:  # also what a stopped matrix has seen
            write_results(options.out, rows, options)
    return rows, failed


def _be_share(work: Work, runs: int, folder: Path, part: int, options: argparse.Namespace) -> None:
    """Run one part of a work's killed runs in this process, and end it."""
    code = 1
    try:
        with (folder / ROWS).open("w") as file:
            chance = random.Random(f"{options.seed} {work.name}")
            for row in torture(work, runs, folder, chance, share=(part, options.jobs)):
                file.write(json.dumps(row) + "\n")
                print(f"{'same ' if is_same(row) else 'OTHER'} {work.name:<10} killed at {row['killed_at']}")
                sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def require(code: int, words: str) -> None:
    """Stop where a process did not end well."""
    if code:
        sys.exit(f"{words} (exit code {code})")


def main() -> None:
    """Run the matrix, print it, and say at the end whether every run was the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", action="store_true", help="methods: the digits, not made-up data")
    parser.add_argument("--work", default="all", help="names of methods, study, tuning, request, joined by commas")
    parser.add_argument("--kills", type=int, help="kills in all, at least; default: nine killed runs of everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        rows, failed = torture_all(options, Path(place))
    other = [row for row in rows if not is_same(row)]
    kills, bits = sum(row["kills"] for row in rows), sum(row["differing_bits"] for row in rows)
    count = len({row["method"] for row in rows})
    print(f"{len(rows)} killed runs of {count} works, {kills} kills, {bits} differing bits: ", end="")
    if other or failed:
        sys.exit(f"{len(other)} ended otherwise; these failed: {', '.join(failed) or 'none'}")
    print("all ended like one that was not killed")


def is_same(row: dict) -> bool:
    """Tell whether a killed run ended like one that was not."""
    return all(row[name] for name in PARTS)


def write_results(folder: Path, rows: list[dict], options: argparse.Namespace) -> None:
    """Write the matrix and where it comes from."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    order = {name: place for place, name in enumerate([*METHODS, "study", "tuning", "request"])}
    rows = sorted(rows, key=lambda row: (order[row["method"]], row["number"]))
    parquet.write_table(pa.Table.from_pylist(rows), folder / "results.parquet")
    about = provenance(torch.device("cpu")) | {
        "command": " ".join(["python", "-m", MODULE, *sys.argv[1:]]),
        "benchmark": "digits" if options.digits else "made-up data",
        "killed_runs": len(rows),
        "kills": sum(row["kills"] for row in rows),
        "differing_bits": sum(row["differing_bits"] for row in rows),
    }
    write_whole(folder / "provenance.json", (json.dumps(about, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
