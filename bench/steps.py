"""Step times of the digits by the public API, and how they compare with those of another source tree.

    python -m bench.steps [--against CHECKOUT] [--rounds 8] [--pairs 3] [--within 0.03] [--out FOLDER]

Measures a step of stage 1, of stage 2 and of fine-tuning, an evaluation, and a short whole run with its guard. With
``--against`` the two trees take turns. Each has a process of its own (`bench.clocked`) with its folder as PYTHONPATH;
after some rounds a new pair of processes starts. Other work on the machine only adds time. So the smallest time between
two forward passes counts, of all rounds, and a step takes the sum of these minima. Processor time comes first, because
it leaves out the time in which another process had the core; wall time is reported too.

Two more numbers have no noise at all: calls of functions in a step, from Python into Python or C; and digests of the
resulting weights, which tell whether both trees did the same work.

With ``--within 0.03`` the exit status is 1 if a part takes more than 3% longer than in the other tree.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench import clocked, measure

OURS = Path(__file__).parents[1] / "src"
CLOCKS = ("wall", "processor")
Times = Sequence[Sequence[float]]  # of each interval: wall seconds, processor seconds, calls


@dataclass
class Part:
    """The smallest times of a part's intervals so far, for each pair of processes."""

    count: int  # steps that the intervals make up
    pairs: list[Times] = field(default_factory=list)
    calls: float = 0.0  # in a step

    def add(self, pair: int, times: Times) -> None:
        """Take the times of a round."""
        self.pairs[pair:] = [smallest([*self.pairs[pair:], times])]

    def seconds(self, clock: str, *, pair: int | None = None) -> float:
        """Return the seconds of a step: the sum of the smallest times, of all pairs or of one."""
        times = smallest(self.pairs) if pair is None else self.pairs[pair]
        return sum(each[CLOCKS.index(clock)] for each in times) / self.count


def smallest(several: Sequence[Times]) -> Times:
    """Return the smallest time of each interval, by each clock.

    >>> smallest([[(3, 1), (5, 5)], [(2, 2), (6, 4)]])
    [(2, 1), (5, 4)]
    """
    if len({len(times) for times in several}) > 1:
        raise ValueError("The number of forward passes changed from round to round, so times cannot be compared.")
    return [tuple(map(min, zip(*times, strict=True))) for times in zip(*several, strict=True)]


@dataclass
class Tree:
    """A source tree: its folder, what its parts take, and the digests of its results."""

    folder: Path
    parts: dict[str, Part] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)

    def add(self, pair: int, found: dict[str, Any]) -> None:
        """Take the times of a round."""
        self.digests.add(found["digest"])
        for name, part in found["parts"].items():
            self.parts.setdefault(name, Part(part["count"])).add(pair, part["intervals"])

    def add_calls(self, found: dict[str, Any]) -> None:
        """Take the calls of a counted round."""
        for name, part in found["parts"].items():
            self.parts[name].calls = sum(calls for *_, calls in part["intervals"]) / part["count"]


def source_of(folder: Path) -> Path:
    """Return the folder that holds the package, of a checkout or of its ``src``."""
    for one in (folder / "src", folder):
        if (one / "unweave" / "__init__.py").is_file():
            return one.resolve()
    raise SystemExit(f"{folder} holds no package unweave. Give the folder of a checkout, or its src.")


@contextmanager
def process_of(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that measures the package in a folder, and end it afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    # -P: modules beside this file must not hide modules of other names.
    words = [sys.executable, "-P", str(Path(clocked.__file__).resolve())]
    process = subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        yield process
    finally:
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(process: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """Ask a process for a round: ``time`` or ``count``."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("The process was started without pipes.")
    print(what, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit("A measuring process ended early; see its error above.")
    found: dict[str, Any] = json.loads(answer)
    return found


def measure_trees(trees: Sequence[Tree], *, pairs: int, rounds: int) -> None:
    """Let the trees take turns: another begins each round. A process's first round does not count."""
    for pair in range(pairs):
        with ExitStack() as stack:
            turns = [(tree, stack.enter_context(process_of(tree.folder))) for tree in trees]
            for _, process in turns:
                ask(process, "time")
            for number in range(rounds):
                for tree, process in turns if number % 2 == 0 else turns[::-1]:
                    tree.add(pair, ask(process, "time"))
                print(f"pair {pair + 1} of {pairs}, round {number + 1} of {rounds}", file=sys.stderr)
            for tree, process in turns if pair == 0 else []:
                tree.add_calls(ask(process, "count"))


def table(ours: Tree, other: Tree | None) -> dict[str, dict[str, Any]]:
    """Return what each part takes and, with another tree, the ratio of the minima: of all pairs, and of each."""
    found: dict[str, dict[str, Any]] = {}
    for name, part in ours.parts.items():
        row = found[name] = _row(part)
        if other is None:
            continue
        theirs = other.parts[name]
        row["other"] = _row(theirs)
        row["ratio"] = {key: row[key] / row["other"][key] for key in row["other"]}
        row["ratio_of_each_pair"] = [
            part.seconds("processor", pair=pair) / theirs.seconds("processor", pair=pair)
            for pair in range(len(part.pairs))
        ]
    return found


def _row(part: Part) -> dict[str, Any]:
    return {**{f"{clock}_seconds": part.seconds(clock) for clock in CLOCKS}, "calls": part.calls}


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print a table: milliseconds of processor time, calls, and ratios if there is another tree."""
    for name, row in rows.items():
        line = f"{name:<12}{_words(row)}"
        if "other" in row:
            ratio, pairs = row["ratio"], ", ".join(f"{ratio:.3f}" for ratio in row["ratio_of_each_pair"])
            line += (
                f"   other tree{_words(row['other'])}   ratio {ratio['processor_seconds']:.3f} (of each pair: {pairs}; "
                f"wall: {ratio['wall_seconds']:.3f}; calls: {ratio['calls']:.3f})"
            )
        print(line)


def _words(row: dict[str, Any]) -> str:
    return f"{1e3 * row['processor_seconds']:>9.3f} ms{row['calls']:>9,.0f} calls"


def too_slow(rows: dict[str, dict[str, Any]], within: float) -> list[str]:
    """Return the parts that take longer than in the other tree by more than this share."""
    return [name for name, row in rows.items() if row["ratio"]["processor_seconds"] > 1 + within]


def commit_of(folder: Path) -> str | None:
    """Return the commit of a source tree, or None without a history."""
    git = shutil.which("git")
    if git is None:
        return None
    found = subprocess.run([git, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def main() -> None:
    """Measure, print, write; fail if a part is too slow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each process")
    parser.add_argument("--pairs", type=int, default=3, help="processes of each tree, one after the other")
    parser.add_argument("--within", type=float, help="the most that a part may be slower, such as 0.03")
    parser.add_argument("--out", type=Path, help="folder for steps-cpu.json")
    words = parser.parse_args()
    if words.within is not None and words.against is None:
        parser.error("--within compares with another tree. Give --against too.")
    ours, other = Tree(OURS), None if words.against is None else Tree(source_of(words.against))
    measure_trees([tree for tree in (ours, other) if tree], pairs=words.pairs, rounds=words.rounds)
    rows = table(ours, other)
    content: dict[str, Any] = {"rounds": words.rounds, "pairs": words.pairs, "parts": rows}
    show(rows)
    if other is not None:
        content["other_commit"] = commit_of(other.folder)
        content["same_weights"] = ours.digests == other.digests and len(ours.digests) == 1
        print("Both trees gave the same weights." if content["same_weights"] else "The trees gave different weights.")
    measure.write(words.out, "steps-cpu", content, torch.device("cpu"))
    if words.within is not None and (slow := too_slow(rows, words.within)):
        raise SystemExit(f"More than {words.within:.0%} slower than the other tree: {', '.join(slow)}.")


if __name__ == "__main__":
    main()
