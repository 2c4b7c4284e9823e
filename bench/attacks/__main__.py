"""The command line of the attacks (see the package)."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.attacks.models import Contender, Plan, work
from bench.attacks.numbers import ABOUT, SUBSETS, numbers_of
from bench.attacks.page import tables
from unweave import UsageError
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.protocol import PROTOCOL
from unweave.runtime import pick_device
from unweave.storage import Lock, provenance, write_whole


def run(words: argparse.Namespace) -> None:
    """Make the models of a share."""
    options = dict(text.partition("=")[::2] for text in words.option)
    options |= {"small": True} if words.small else {}
    benchmark = find_benchmark(words.benchmark, data=words.data, options=options, tuned=words.tuned)
    task = benchmark.load()
    plan = Plan(
        benchmark=benchmark,
        task=task,
        contenders=[Contender.parse(text) for text in words.method],
        shadows=words.shadows,
        retrained=words.retrained,
        folder=words.out,
        seed=words.seed,
        device=words.device,
    )
    share = tuple(map(int, words.share.split("/")))
    if len(share) != 2 or not 0 <= share[0] < share[1]:
        raise UsageError(f"--share {words.share} must be such as 0/8, the first of eight shares.")
    _begin(plan, words.device)
    for line in work(plan, share):
        print(line, flush=True)


def _begin(plan: Plan, device: str | None) -> None:
    """Write what the folder is of, or check that it is of the same."""
    (plan.folder / "margins").mkdir(parents=True, exist_ok=True)
    (plan.folder / "originals").mkdir(exist_ok=True)
    about = {
        **plan.benchmark.about(plan.task),
        "shadows": plan.shadows,
        "retrained": plan.retrained,
        "seed": plan.seed,
        "members": {subset: len(plan.task.train[subset]) for subset in SUBSETS},
    }
    file, about = plan.folder / ABOUT, json.loads(json.dumps(about))
    said = provenance(pick_device(device)) | {"protocol": PROTOCOL.version}
    said["command"] = " ".join(["python -m bench.attacks", *map(shlex.quote, sys.argv[1:])])
    with Lock(plan.folder / "begin.lock", wait=True):  # shares begin at the same time
        before = json.loads(file.read_text()) if file.exists() else {}
        if before and {key: before.get(key) for key in about} != about:
            raise UsageError(f"{plan.folder} holds other attacks. Choose another --out.")
        runs = [*before.get("runs", []), said]
        write_whole(file, (json.dumps({**about, "runs": runs}, indent=2) + "\n").encode())


def table(words: argparse.Namespace) -> None:
    """Compute the attacks, write them to the folder, and print the tables."""
    found = numbers_of(words.folder)
    text = json.dumps(found, indent=1) + "\n"
    write_whole(words.folder / "numbers.json", text.encode())
    if words.publish:
        words.publish.mkdir(parents=True, exist_ok=True)
        write_whole(words.publish / "numbers.json", without_places(text).encode())
    print(tables(found))


def without_places(text: str) -> str:
    """Return the numbers without the folders of one machine in their commands."""
    text = re.sub(r"--data \S+", "--data DATA", text)
    return re.sub(r"(--(?:out|tuned) )/(?:[^/\s\"]*/)*", r"\1", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. The exit code is 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description="Attack methods with many models.")
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("run", help="train, unlearn and retrain; the same command resumes")
    made.add_argument("benchmark")
    made.add_argument("--method", action="append", required=True, help="METHOD[:PROFILE] [KEY=VALUE …]; repeatable")
    made.add_argument("--shadows", type=int, default=PROTOCOL.shadow_models)
    made.add_argument("--retrained", type=int, default=PROTOCOL.retrained_models, help="as many again are made")
    made.add_argument("--share", default="0/1", help="K/N: do every N-th model, from the K-th on")
    made.add_argument("--data")
    made.add_argument("--option", action="append", default=[], help="KEY=VALUE of the benchmark; repeatable")
    made.add_argument("--small", action="store_true")
    made.add_argument("--tuned", type=Path, help="folder of `unweave tune`")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--device")
    made.add_argument("--threads", type=int, default=0, help="of this process; 0: torch's choice")
    made.add_argument("--out", type=Path, required=True)
    made.set_defaults(command=run)
    shown = commands.add_parser("table", help="compute the attacks, and print their tables")
    shown.add_argument("folder", type=Path)
    shown.add_argument("--publish", type=Path, help="folder for the numbers, such as results/cifar100-cnn/attacks")
    shown.set_defaults(command=table)
    words = parser.parse_args(arguments)
    if getattr(words, "threads", 0):
        torch.set_num_threads(words.threads)
    try:
        words.command(words)
    except UsageError as error:
        print(f"bench.attacks: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
