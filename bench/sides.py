"""Two sides of a comparison, each a process, on one core at the same time.

A clock alone does not tell two programs apart on a machine with other work: what runs on the neighbouring core changes
processor time by tens of percent, from minute to minute. So both sides run on one core at the same time; the system
lets them alternate every few milliseconds, and both see the same neighbours. The ratio of their processor times is
steady, and its median over the rounds counts. The sum of the smallest times of all rounds is reported too.

Two things that differ from process to process are held fixed. Python hashes texts alike in all of them. And glibc keeps
freed memory (``MALLOC_*``): by default it may give it back in every step, and then a step takes up to a fifth longer,
in one process and not in another that runs the same code.

A side answers each line on its standard input, ``time`` or ``count``, with a line of JSON (`bench.clocked.serve`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

CLOCKS = ("wall", "processor")
Times: TypeAlias = "Sequence[Sequence[float]]"  # of each interval: wall seconds, processor seconds, calls
ENOUGH = str(1 << 32)  # bytes
STEADY = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MALLOC_MMAP_THRESHOLD_": ENOUGH,
    "MALLOC_TRIM_THRESHOLD_": ENOUGH,
    "MALLOC_TOP_PAD_": str(1 << 28),
}


@dataclass
class Part:
    """What one part of the work takes: the times of its intervals, in each round of each pair of processes."""

    count: int  # steps that the intervals make up
    pairs: list[list[Times]] = field(default_factory=list)
    calls: float = 0.0  # in a step

    def add(self, pair: int, times: Times) -> None:
        """Take the times of a round."""
        if pair == len(self.pairs):
            self.pairs.append([])
        self.pairs[pair].append(times)

    def smallest(self, clock: str) -> float:
        """Return the seconds of a step, as the sum of the smallest times of each interval."""
        return sum(each[CLOCKS.index(clock)] for each in smallest([*chain(*self.pairs)])) / self.count

    def seconds(self, pair: int) -> list[float]:
        """Return the processor seconds of a step, for each round of a pair of processes."""
        return [sum(each[CLOCKS.index("processor")] for each in times) / self.count for times in self.pairs[pair]]


def smallest(several: Sequence[Times]) -> Times:
    """Return the smallest time of each interval, by each clock.

    >>> smallest([[(3, 1), (5, 5)], [(2, 2), (6, 4)]])
    [(2, 1), (5, 4)]
    """
    if len({len(times) for times in several}) > 1:
        raise ValueError("The number of forward passes changed from round to round, so times cannot be compared.")
    return [tuple(map(min, zip(*times, strict=True))) for times in zip(*several, strict=True)]


@dataclass
class Side:
    """One side: the command that starts its process, what its parts take, and the digests of its results."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
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


@contextmanager
def process_of(side: Side) -> Iterator[subprocess.Popen[str]]:
    """Start the process of a side, and end it afterwards."""
    environment = {**os.environ, **STEADY, **side.environment}
    process = subprocess.Popen(side.command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        try:
            process.communicate(timeout=60)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(processes: Sequence[subprocess.Popen[str]], what: str) -> list[dict[str, Any]]:
    """Ask all sides for a round at the same time: ``time`` or ``count``."""
    for process in processes:
        print(what, file=process.stdin, flush=True)
    answers = [process.stdout.readline() if process.stdout else "" for process in processes]
    if not all(answers):
        raise SystemExit("A measuring process ended early; see its error above.")
    return [json.loads(answer) for answer in answers]


def measure_sides(sides: Sequence[Side], *, pairs: int, rounds: int) -> None:
    """Run all sides at the same time, in some pairs of processes one after the other."""
    for pair in range(pairs):
        with ExitStack() as stack:
            processes = [stack.enter_context(process_of(side)) for side in sides]
            ask(processes, "time")  # the first round of a process does not count
            for number in range(rounds):
                for side, found in zip(sides, ask(processes, "time"), strict=True):
                    side.add(pair, found)
                print(f"pair {pair + 1} of {pairs}, round {number + 1} of {rounds}", file=sys.stderr)
            if pair == 0:
                for side, found in zip(sides, ask(processes, "count"), strict=True):
                    side.add_calls(found)


def row_of(part: Part) -> dict[str, float]:
    """Return what a part takes: the smallest seconds by each clock, the median, and calls."""
    each = [seconds for pair in range(len(part.pairs)) for seconds in part.seconds(pair)]
    return {
        **{f"smallest_{clock}_seconds": part.smallest(clock) for clock in CLOCKS},
        "median_processor_seconds": statistics.median(each),
        "calls": part.calls,
    }


def ratios(part: Part, other: Part) -> dict[str, Any]:
    """Return how many times as long a part takes as another: the median over rounds, of all and of each pair.

    Beside it stand the ratio of the sums of smallest times, and the ratio of calls.
    """
    by_pair = [
        [mine / theirs for mine, theirs in zip(part.seconds(pair), other.seconds(pair), strict=True)]
        for pair in range(len(part.pairs))
    ]
    return {
        "median": statistics.median(chain(*by_pair)),
        "median_of_each_pair": [statistics.median(pair) for pair in by_pair],
        "smallest": part.smallest("processor") / other.smallest("processor"),
        "calls": part.calls / other.calls if other.calls else None,
    }


def table(mine: Side, other: Side | None) -> dict[str, dict[str, Any]]:
    """Return what each part takes on one side or on both, and the ratios."""
    found: dict[str, dict[str, Any]] = {}
    for name, part in mine.parts.items():
        found[name] = {"steps": part.count, "ours": row_of(part)}
        if other is not None:
            found[name] |= {"other": row_of(other.parts[name]), "ratio": ratios(part, other.parts[name])}
    return found


def show(rows: dict[str, dict[str, Any]], *, other: str) -> None:
    """Print a line for each part: milliseconds of processor time, calls, and ratios if there is another side."""
    for name, row in rows.items():
        line = f"{name:<20}{_words(row['ours'])}"
        if "ratio" in row:
            ratio = row["ratio"]
            pairs = ", ".join(f"{one:.3f}" for one in ratio["median_of_each_pair"])
            line += (
                f"   {other}{_words(row['other'])}   ratio {ratio['median']:.3f} (of each pair: {pairs}; of the "
                f"smallest: {ratio['smallest']:.3f}; of calls: {ratio['calls']:.3f})"
            )
        print(line)


def _words(row: dict[str, float]) -> str:
    return f"{1e3 * row['median_processor_seconds']:>9.3f} ms{row['calls']:>9,.0f} calls"


def slower(rows: dict[str, dict[str, Any]], *, than: float) -> list[str]:
    """Return the parts that take more than ``than`` times as long as on the other side."""
    return [name for name, row in rows.items() if row["ratio"]["median"] > than]


def options(description: str, *, file: str, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options that commands of this kind share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds of each pair of processes")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes, one after the other")
    parser.add_argument("--out", type=Path, help=f"folder for {file}")
    return parser
