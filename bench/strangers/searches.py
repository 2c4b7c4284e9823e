"""The commands that run many trials: ``oracle``, and ``choose`` for the methods that it tunes."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.strangers import choice
from bench.strangers.looks import require_look
from bench.strangers.oracle import TRIALS, regrets, summary
from bench.strangers.originals import cache_folder
from bench.strangers.schedule import Schedule
from bench.strangers.spread import spread
from bench.strangers.tasks import TASKS, find_task
from unweave.errors import UsageError
from unweave.methods import find_method
from unweave.storage import provenance

DEFAULTS: dict[str, Any] = {"command": "try", "method": None, "settings": {}}  # the look that an oracle belongs to


def find_oracle(chosen: argparse.Namespace) -> None:
    """Tune methods on tasks, compare the defaults with the best trial, and append every run to a file."""
    names = chosen.tasks or [name for name, task in TASKS.items() if task.half == (chosen.half or "development")]
    methods = chosen.methods.split(",")
    rows = _run(chosen, names, methods, judges=True)
    found = []
    for name in names:
        some = regrets((row for row in rows if row["task"] == name), methods)
        found += some
        if not some:
            print(f"{name:<26}no valid trial")
        for row in some:
            how = " ".join(f"{key}={value}" for key, value in row["settings"].items()) or "its default"
            lacks = f"{row['adjacent']:>6.1f}{row['remote']:>6.1f}"
            print(f"{name:<26}{row['seed']:>3}  regret {lacks}  {row['method']} {how}")
    if found:
        print(summary(found))


def choose(chosen: argparse.Namespace) -> None:
    """Try every method on development tasks, and print which four are best."""
    chosen.seeds, chosen.look = range(1), None
    methods = chosen.methods.split(",") if chosen.methods else choice.candidates()
    rows = _run(chosen, chosen.tasks or choice.TASKS, methods, judges=False)
    rows = [row for row in rows if row["method"] in methods]
    for name, about in choice.ranking(rows).items():
        print(f"{name:<12} regret {about['regret']:>5.1f}, valid on {about['valid']} of {about['tasks']} tasks")
    print(f"chosen: {','.join(choice.chosen(rows))}")


def add_to(command: argparse.ArgumentParser, name: str) -> None:
    """Add the options that these commands share."""
    tuned = "to tune, with commas" + ("; all that can be if not given" if name == "choose" else "")
    command.add_argument("--methods", required=name == "oracle", help=tuned)
    command.add_argument("--trials", type=int, default=TRIALS if name == "oracle" else choice.TRIALS, help="of each")
    command.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    command.add_argument(
        "--minutes", type=float, default=math.inf, help="time for everything; it ends with whole rounds"
    )


def _run(
    chosen: argparse.Namespace, names: Sequence[str], methods: Sequence[str], *, judges: bool
) -> list[dict[str, Any]]:
    """Run what is not in the file yet, append it, and return all rows of these tasks."""
    if chosen.jobs < 1 or chosen.trials < 1 or not chosen.minutes > 0:
        raise UsageError("--jobs and --trials must be at least 1, and --minutes above 0.")
    for method in methods:
        find_method(method)
    require_look([find_task(name) for name in names], chosen.look, DEFAULTS)
    cache = cache_folder(chosen.cache)
    file = Path(chosen.out) if chosen.out else cache / f"{'oracle' if judges else 'choice'}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    about = provenance(torch.device("cpu"))
    about["command"] = " ".join(["python -m bench.strangers", *map(shlex.quote, sys.argv[1:])])
    schedule = Schedule(
        names, list(chosen.seeds), methods, chosen.trials, judges=judges, known=[r for r in rows if r["task"] in names]
    )
    with file.with_suffix(".provenance.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(about) + "\n")
    begun = time.monotonic()

    def keep(row: dict[str, Any]) -> None:
        rows.append(row | {"commit": about["commit"]})
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
        _tell(row, time.monotonic() - begun)

    spread(schedule, keep, jobs=chosen.jobs, seconds=60 * chosen.minutes, data=chosen.data, cache=cache)
    return [row for row in rows if row["task"] in names]


def _tell(row: dict[str, Any], seconds: float) -> None:
    what = f"{row['method'] or 'default'} {row['number']}"
    found = row["error"] or ("valid" if row["valid"] else "not valid")
    print(
        f"{seconds:>6.0f} s  {row['task']:<26}{row['seed']:>2}  {what:<14}{row['seconds']:>7.1f} s  {found}", flush=True
    )
