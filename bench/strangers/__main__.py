"""The suite of strangers: small tasks that no default was made for.

    python -m bench.strangers list
    python -m bench.strangers train [TASK …] --seeds 3
    python -m bench.strangers try [TASK …] --method unweave --set epochs=12
    python -m bench.strangers table
    python -m bench.strangers forecast
    python -m bench.strangers unseen
    python -m bench.strangers choose
    python -m bench.strangers oracle TASK --methods adaptive,unweave --trials 30 --jobs 8

Tasks are names, or none for all of the development half. `docs/protocol.md` says what may be tried on which.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.strangers.catalogue import REQUESTS
from bench.strangers.looks import require_look
from bench.strangers.originals import Case, cache_folder
from bench.strangers.searches import DEFAULTS, add_to, choose, find_oracle
from bench.strangers.summary import HEADER, line_of, table
from bench.strangers.tasks import TASKS, Stranger, find_task
from bench.strangers.tries import attempt, foretold
from bench.strangers.unseen import as_unseen
from unweave.errors import RunError, UsageError
from unweave.storage import provenance

APART = ("rmia", "losses", "predictions")


def list_tasks(chosen: argparse.Namespace) -> None:
    """Print every task."""
    for task in TASKS.values():
        r = task.recipe
        how = f"{r.optimizer} {r.learning_rate:g}, {r.epochs} epochs, batches of {r.batch_size}"
        print(f"{task.name:<26}{task.half:<13}{task.family:<9}{task.request:<12} {how}")


def train_models(chosen: argparse.Namespace) -> None:
    """Train originals and retrained models, and keep them."""
    for case in _cases(chosen, DEFAULTS):  # of the judgement half, only for a look at the defaults
        both = (case.original, *([] if chosen.original_only else [case.retrained]))
        seconds = " + ".join(f"{model.seconds:.1f}" for model in both)
        sizes = "/".join(str(len(case.train[subset])) for subset in ("forget", "adjacent", "remote"))
        tests = "/".join(str(len(case.test[subset])) for subset in ("forget", "adjacent", "remote"))
        print(f"{case.task.name:<26}{case.seed}  train {sizes}  test {tests}  {seconds} s", flush=True)


def try_method(chosen: argparse.Namespace) -> None:
    """Run a method on tasks, print the rows and append them to a file."""
    settings = dict(_setting(text) for text in chosen.set)
    file = _tries(chosen)
    file.parent.mkdir(parents=True, exist_ok=True)
    commit = provenance(torch.device("cpu"))["commit"]
    print(HEADER)
    for case in _cases(chosen, {"command": "try", "method": chosen.method, "settings": settings}):
        row = attempt(case, chosen.method, settings) | {"tag": chosen.tag, "commit": commit}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(line_of([row]), flush=True)
        if row["error"]:
            print(f"    {row['message']}")


def compare_forecasts(chosen: argparse.Namespace) -> None:
    """Compare what `inspect` forecasts with what a retrained model recognises, and append the rows to a file."""
    file = Path(chosen.out) if chosen.out else cache_folder(chosen.cache) / "forecasts.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    print(f"{'task':<26}seed  forecast  retrained")
    for case in _cases(chosen, {"command": "forecast"}):
        rows.append(foretold(case))
        print(
            f"{case.task.name:<26}{case.seed:>4}{rows[-1]['forecast']:>10.1%}{rows[-1]['retrained']:>11.1%}", flush=True
        )
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
    errors = [abs(row["forecast"] - row["retrained"]) for row in rows]
    print(f"mean error {sum(errors) / len(errors):.1%}, largest {max(errors):.1%}, over {len(errors)} cells")


def aim_at_unseen(chosen: argparse.Namespace) -> None:
    """Aim at losses of unseen data where single samples are to go, and append how near that is to retrained models."""
    file = Path(chosen.out) if chosen.out else cache_folder(chosen.cache) / "unseen.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    chosen.tasks = chosen.tasks or [name for name, request in REQUESTS.items() if request.startswith("random")]
    chosen.tasks = [name for name in chosen.tasks if chosen.look or find_task(name).half == "development"]
    by_task: dict[str, list[Case]] = {}
    for case in _cases(chosen, {"command": "unseen"}):
        by_task.setdefault(case.task.name, []).append(case)
    print(f"{'task':<26}seed  aim                     RMIA (retrained)  losses apart  predictions apart  cost")
    for cases in by_task.values():
        retrained = [case.retrained.model for case in cases]
        for case in cases:
            for row in as_unseen(case, retrained):
                near = "".join(f"{row[name]:>9.3f} ({row[f'{name} retrained']:.3f})" for name in APART)
                print(f"{row['task']:<26}{row['seed']:>4}  {row['aim']:<22}{near}{row['share']:>7.2f}", flush=True)
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row) + "\n")


def show_table(chosen: argparse.Namespace) -> None:
    """Print tables of what was tried."""
    file = _tries(chosen)
    if not file.exists():
        raise UsageError(f"{file} does not exist. `python -m bench.strangers try` writes it.")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    print(table(row for row in rows if chosen.tag is None or row.get("tag") == chosen.tag))


def _cases(chosen: argparse.Namespace, what: dict[str, Any]) -> Iterator[Case]:
    """Return the cells that were asked for, once it is clear that they may be looked at."""
    tasks: Sequence[Stranger] = [find_task(name) for name in chosen.tasks]
    tasks = tasks or [task for task in TASKS.values() if task.half == (chosen.half or "development")]
    require_look(tasks, chosen.look, what)
    cache = cache_folder(chosen.cache)
    return (Case(task, seed, data=chosen.data, cache=cache) for task in tasks for seed in chosen.seeds)


def _tries(chosen: argparse.Namespace) -> Path:
    return Path(chosen.out) if chosen.out else cache_folder(chosen.cache) / "tries.jsonl"


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"--set takes name=value, not {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.strangers", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, work in (
        ("list", list_tasks),
        ("train", train_models),
        ("try", try_method),
        ("table", show_table),
        ("forecast", compare_forecasts),
        ("unseen", aim_at_unseen),
        ("oracle", find_oracle),
        ("choose", choose),
    ):
        command = commands.add_parser(name, help=(work.__doc__ or "").splitlines()[0])
        command.set_defaults(work=work)
        command.add_argument("--cache", help="folder of trained models (or UNWEAVE_STRANGERS)")
        if name in ("oracle", "choose"):
            add_to(command, name)
        if name in ("train", "try", "forecast", "unseen", "oracle", "choose"):
            command.add_argument("tasks", nargs="*", help="names; none: all of the development half")
            command.add_argument("--half", choices=("development", "judgement"), help="all tasks of a half")
            command.add_argument("--seeds", type=_seeds, default=range(3), help="a number, or seeds such as 0,2")
            command.add_argument("--data", default=os.environ.get("UNWEAVE_DATA"), help="folder of data sets")
            command.add_argument("--look", help="why the judgement half is looked at; two looks at most")
        if name in ("try", "table", "forecast", "unseen", "oracle", "choose"):
            command.add_argument("--out", help="file of rows; in CACHE if not given")
            command.add_argument("--tag", help="a word that tells these tries from others")
    commands.choices["train"].add_argument("--original-only", action="store_true", help="no retrained models")
    commands.choices["try"].add_argument("--method", help="as for unlearn; none: its default")
    commands.choices["try"].add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return parser


def _seeds(text: str) -> Sequence[int]:
    return [int(part) for part in text.split(",")] if "," in text else range(int(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; an error is one sentence."""
    torch.set_num_threads(1)  # results do not depend on the machine's cores, and others may use them
    chosen = _parser().parse_args(arguments)
    try:
        chosen.work(chosen)
    except (UsageError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
