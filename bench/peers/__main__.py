"""Other projects' methods beside ours, on the same split and original.

    python -m bench.peers prepare fashion-mnist --data DATA --out CASE
    python -m bench.peers run CASE --tool unweave adaptive two-stage unweave
    python -m bench.peers run CASE --tool torchunlearn --python ENV/bin/python --place CHECKOUT RFE
    python -m bench.peers run CASE --tool supreme --python ENV/bin/python --place UNPACKED finetune ssd scrub
    python -m bench.peers tune DEVELOPMENT CASE --tool torchunlearn --python … --place … --trials 6 RFE
    python -m bench.peers run ANOTHER --tool torchunlearn --python … --place … --tuned RFE
    python -m bench.peers.page

ENV is an environment outside this repository with the peer's dependencies. `--place` is the peer's checkout, or its
unpacked wheel.
Rows are appended to results/peers/BENCHMARK.jsonl, or to `--rows FILE`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.peers.case import Case, prepare
from bench.peers.rivals import OURS, Peer, drawn, run_ours, run_peer, score_of
from bench.peers.spaces import SPACES
from unweave import UsageError
from unweave.storage import provenance

RESULTS = Path(__file__).parents[2] / "results" / "peers"
Run = Callable[[Case, str, Mapping[str, Any]], dict[str, Any]]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
    chosen = _parser().parse_args(words)
    chosen.words = sys.argv[1:] if words is None else words
    try:
        chosen.do(chosen)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def make(chosen: argparse.Namespace) -> None:
    """Train the models of a case and write it, with the rows of the original and the retrained model."""
    options = dict(_pair(text) for text in chosen.option)
    like = Path(chosen.like) if chosen.like else None
    folder = Path(chosen.out)
    case = prepare(chosen.benchmark, options, data=chosen.data, seed=chosen.seed, folder=folder, like=like)
    for who, spent in case.about.get("training", {}).items():
        row = {"tool": OURS, "method": who, "settings": {}, **spent, "error": None}
        _keep(chosen, case, row | {"kind": "model", "after": case.six(case.model(folder / f"{who}.safetensors"))})


def run_methods(chosen: argparse.Namespace) -> None:
    """Run methods with their defaults, or with the settings given."""
    case, run = Case(Path(chosen.case)), _runner(chosen)
    settings = dict(_pair(text) for text in chosen.set)
    for method in chosen.methods:
        if chosen.tuned:
            _run_best(chosen, case, method)
        else:
            _keep(chosen, case, run(case, method, settings) | {"kind": "settings" if settings else "default"})


def tune_methods(chosen: argparse.Namespace) -> None:
    """Try settings on the development case, and run the best of them on the case."""
    development, case, run = Case(Path(chosen.development)), Case(Path(chosen.case)), _runner(chosen)
    if development.about["options"] == case.about["options"]:
        raise UsageError("The development case forgets what the case forgets. Prepare one with another --option.")
    for method in chosen.methods:
        if (space := SPACES.get((chosen.tool, method))) is None:
            raise UsageError(f"bench/peers/spaces.py has no space for {method} of {chosen.tool}.")
        for number in range(chosen.trials):
            settings = drawn(space, number, seed=development.about["seed"])
            row = run(development, method, settings) | {"kind": "trial", "number": number, "drawn": settings}
            _keep(chosen, development, row)
        _run_best(chosen, case, method)


def _run_best(chosen: argparse.Namespace, case: Case, method: str) -> None:
    """Run the settings of the best trial in the file of rows."""
    file = _rows_file(chosen, case)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    tried = [row for row in rows if (row["kind"], row["tool"], row["method"]) == ("trial", chosen.tool, method)]
    if not tried:
        raise UsageError(f"{file} has no trial of {method} of {chosen.tool}. Tune it first.")
    best = max(tried, key=lambda row: row["score"])
    about = {"kind": "tuned", "trials": len(tried), "number": best["number"]}
    _keep(chosen, case, _runner(chosen)(case, method, best["drawn"]) | about)


def _rows_file(chosen: argparse.Namespace, case: Case) -> Path:
    return Path(chosen.rows) if chosen.rows else RESULTS / f"{case.about['benchmark']}.jsonl"


def _runner(chosen: argparse.Namespace) -> Run:
    if chosen.tool == OURS:
        return run_ours
    if not chosen.python or not chosen.place:
        raise UsageError(f"{chosen.tool} runs in an environment of its own: --python and --place say where it is.")
    adapter = Path(chosen.adapter) if chosen.adapter else None
    peer = Peer.find(chosen.tool, python=Path(chosen.python), place=Path(chosen.place), adapter=adapter)
    return lambda case, method, settings: run_peer(case, peer, method, settings)


def _keep(chosen: argparse.Namespace, case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Add what the case and the command are, append the row to the file, and print it."""
    about = {key: case.about[key] for key in ("benchmark", "options", "seed")}
    row = about | row | {"before": case.six(case.model())}
    row["score"] = round(score_of(row), 4)
    row["provenance"] = provenance(torch.device("cpu")) | {"command": _command(chosen.words)}
    file = _rows_file(chosen, case)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
    kept = "  ".join(f"{name} {100 * value:.1f}" for name, value in row.get("after", {}).items())
    print(f"{row['tool']} {row['method']} ({row['kind']}): {row['error'] or kept}", flush=True)
    return row


def _command(words: Sequence[str]) -> str:
    """Return the command line without the places of this machine, which tell a reader nothing."""
    said = [Path(word).name if word.startswith("/") else word for word in words]
    return " ".join(["python -m bench.peers", *map(shlex.quote, said)])


def _pair(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise UsageError(f"{text!r} must be NAME=VALUE.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare", help="train an original, and write it with the data and the split")
    first.add_argument("benchmark")
    first.add_argument("--option", action="append", default=[], help="NAME=VALUE, an option of the benchmark")
    first.add_argument("--data", help="the folder of the data sets")
    first.add_argument("--seed", type=int, default=0)
    first.add_argument("--out", required=True, help="the folder of the case")
    first.add_argument("--like", help="a case whose original is used instead of a new one")
    first.set_defaults(do=make)
    for name, do, words in (
        ("run", run_methods, "run methods on a case, with their defaults or given settings"),
        ("tune", tune_methods, "try settings on a development case, and run the best on the case"),
    ):
        command = commands.add_parser(name, help=words)
        if name == "tune":
            command.add_argument("development", help="the folder of a case with something else to forget")
            command.add_argument("--trials", type=int, default=6, help="of each method; the first is its default")
        else:
            command.add_argument("--set", action="append", default=[], help="NAME=VALUE, a setting")
            command.add_argument("--tuned", action="store_true", help="the settings of the best trial so far")
        command.add_argument("case", help="the folder of the case")
        command.add_argument("methods", nargs="+", help="as the tool names them")
        command.add_argument("--tool", required=True, help=f"{OURS}, torchunlearn, supreme, or a name of an --adapter")
        command.add_argument("--python", help="the Python of the peer's environment")
        command.add_argument("--place", help="the peer's checkout or unpacked wheel")
        command.add_argument("--adapter", help="a script that runs the peer (default: the one of its name)")
        command.set_defaults(do=do)
    for command in commands.choices.values():
        command.add_argument("--rows", help="the file of the rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
