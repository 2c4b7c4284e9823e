"""The fuzzing harness: odd files, calls and command lines must end in our own errors, and write nothing outside.

    make fuzz                                          # all counts, into results/fuzz
    python -m tests.helpers.fuzz --parsers 2000 --calls 500 --lines 50 --processes 0
    python -m tests.helpers.fuzz --again "parsers record 17"          # one input again, with its traceback

Every input is made from its kind, its door and its number, so each can be repeated. An input is a finding if it ends in
an exception that is not ours (a traceback), or if anything is written outside the folder that it was given.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import datasets
import huggingface_hub.constants
import matplotlib
import torch

from tests.helpers.fuzz_calls import calls
from tests.helpers.fuzz_lines import line, prepare
from tests.helpers.fuzz_parsers import PARSERS
from tests.helpers.places import ROOT
from unweave import RunError, UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.storage import provenance, write_whole

MODULE = "tests.helpers.fuzz"
OURS = (UsageError, RunError)
CODES = (0, 1, 2, 130)
WRITES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
)
LONGEST, MEMORY = 300, 8 * 2**30  # seconds and bytes that an input may take
UNTIL = {"parsers": 0.4, "calls": 0.6, "lines": 0.8, "processes": 1.0}  # of the time, if that is limited
KINDS = tuple(UNTIL)


class TooLong(BaseException):
    """An input took too long. Nothing that the package catches."""


# What is written, and where


# What the system and matplotlib keep for themselves: statistics of a process, a list of fonts.
ELSEWHERE = ("/dev/null", "/proc", *map(os.path.realpath, (matplotlib.get_configdir(), matplotlib.get_cachedir())))


class Watch:
    """Notes every write of this process outside the folders that are allowed, as Python reports it to audit hooks."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] = ELSEWHERE
        self.outside: list[str] = []
        self.on = False
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, _, flags = arguments
            writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
            if writes and isinstance(path, str | bytes | os.PathLike):
                self._note(event, path)
        elif event in WRITES:
            inside = arguments[-1] if isinstance(arguments[-1], int) and arguments[-1] >= 0 else None
            if event in ("os.remove", "os.rmdir", "os.mkdir") and inside is not None:  # relative to an open folder
                arguments = (os.path.join(os.readlink(f"/proc/self/fd/{inside}"), os.fsdecode(arguments[0])),)
            for path in arguments[:2] if event in ("os.rename", "os.link", "os.symlink") else arguments[:1]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._note(event, path)

    def _note(self, event: str, path: Any) -> None:
        self.on = False  # what is looked up here is no write
        where = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        if not any(where == folder or where.startswith(folder + os.sep) for folder in self.allowed):
            self.outside.append(f"{event} {where}")
        self.on = True

    @contextlib.contextmanager
    def inside(self, folder: Path) -> Iterator[None]:
        """Note writes outside the folder."""
        self.allowed, self.on = (*ELSEWHERE, os.path.realpath(folder)), True
        try:
            yield
        finally:
            self.on = False


class Canary:
    """Files that nothing may change, with links to them from the folder that is given to the inputs."""

    def __init__(self, home: Path) -> None:
        self.place = home / "outside"
        self.place.mkdir()
        for name in ("file.json", "results.parquet"):
            (self.place / name).write_text("untouched")
        (self.place / "folder").mkdir()
        (self.place / "folder" / "kept").write_text("untouched")

    def is_whole(self) -> bool:
        """Tell whether everything is as it was."""
        files = sorted(path for path in self.place.rglob("*") if path.is_file())
        names = [path.relative_to(self.place).as_posix() for path in files]
        return names == ["file.json", "folder/kept", "results.parquet"] and all(
            path.read_text() == "untouched" for path in files
        )


# One input of each kind


def parse(door: str, number: int, folder: Path) -> None:
    """Read one odd file, in a folder of its door."""
    place = folder / door.replace(" ", "-")
    place.mkdir(exist_ok=True)
    PARSERS[door][1](Random(f"parsers {door} {number}"), place)


def call(number: int, known: list[tuple[int, Any]], folder: Path) -> None:
    """Make one odd call."""
    chance = Random(f"calls {number}")
    torch.manual_seed(0)
    (one,) = chance.choices([entry for _, entry in known], [weight for weight, _ in known])
    here = os.getcwd()
    os.chdir(folder)  # a relative path leads there
    try:
        one.with_odd(chance)
    finally:
        os.chdir(here)


def command(number: int, folder: Path) -> None:
    """Run one odd command line in this process. Models are not trained."""
    from unweave.cli import main

    chance = Random(f"lines {number}")
    words = line(chance)
    prepare(folder, chance, words)
    before, sys.argv = sys.argv, ["unweave", *words]
    here, shown = os.getcwd(), warnings.showwarning
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            main()
    except SystemExit as ended:
        text = out.getvalue() + err.getvalue()
        if (ended.code or 0) not in CODES or "Traceback (most recent" in text or "\x1b" in text:
            raise AssertionError(f"exit code {ended.code}: {text[-2000:]}") from ended
    finally:
        sys.argv, warnings.showwarning = before, shown
        os.chdir(here)


def process(number: int, folder: Path) -> None:
    """Run one odd command line in a process of its own, watched by the same hook."""
    chance = Random(f"processes {number}")
    words = line(chance)
    prepare(folder, chance, words)
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "--child", str(folder), *words],
        cwd=folder,
        capture_output=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "HF_HUB_OFFLINE": "1",
        },
        timeout=600,
        check=False,
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode not in CODES or "Traceback (most recent" in text or "WROTE OUTSIDE" in text:
        raise AssertionError(f"exit code {done.returncode}: {shlex.join(words)}: {text[-2000:]}")


def child(folder: str, words: list[str]) -> None:
    """Be `unweave` in a process of its own that says what it writes outside a folder."""
    from unweave.cli import main

    stop_training()
    watch = Watch()
    sys.argv = ["unweave", *words]
    try:
        with watch.inside(Path(folder)):
            main()
    finally:
        if watch.outside:
            print("WROTE OUTSIDE", watch.outside[:5], file=sys.stderr)


def too_long(*_: Any) -> None:
    """End an input that takes too long, as an alarm."""
    raise TooLong(f"It took more than {LONGEST} seconds.")


def stop_training() -> None:
    """Let every command that would train end there: what it reads before is tried. The Hub is not asked."""
    datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True

    def train(*arguments: Any, **more: Any) -> Any:
        raise RunError("Training is not part of this.")

    Benchmark.train = train  # type: ignore[method-assign]
    Benchmark.train_briefly = train  # type: ignore[method-assign]


# Many inputs


class Tally:
    """Counts inputs, and keeps what was found."""

    def __init__(self, home: Path) -> None:
        self.home, self.canary, self.watch = home, Canary(home), Watch()
        self.counts: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.longest = 0  # seconds that an input may take; 0: any number
        self.tracebacks: dict[str, str] = {}
        self.outside: dict[str, str] = {}

    def try_(self, kind: str, name: str, work: Callable[[Path], None], *, every: int = 1) -> None:
        """Try one input in a folder that is emptied after so many inputs."""
        folder = self.home / "inside"
        if self.counts[kind] % every == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "linked.json").symlink_to(self.canary.place / "file.json")
            (folder / "linked").symlink_to(self.canary.place / "folder")
        self.counts[kind] += 1
        begun = time.perf_counter()
        signal.alarm(self.longest)
        tempfile.tempdir = str(folder)
        try:
            with self.watch.inside(folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work(folder)
        except OURS:
            self.ours[kind] += 1
        except (Exception, TooLong):
            self.tracebacks.setdefault(name, traceback.format_exc())
            print(f"--- {name}\n{self.tracebacks[name]}", flush=True)
        signal.alarm(0)
        tempfile.tempdir = None
        self.seconds[kind] += time.perf_counter() - begun
        if self.watch.outside:
            self.outside[name] = self.watch.outside.pop()
            self.watch.outside.clear()
        if self.counts[kind] % 100 == 0 and not self.canary.is_whole():
            self.outside[name] = "a file outside the folder was changed"
            shutil.rmtree(self.canary.place)
            self.canary = Canary(self.home)


def fuzz(tally: Tally, counts: dict[str, int], *, first: int = 0, minutes: float = math.inf) -> None:
    """Try so many inputs of each kind, or as many as fit into the time, of which each kind has a share."""
    begun = time.monotonic()

    def numbers(kind: str, each: int = 1) -> Iterator[int]:
        for number in range(first, first + -(-counts[kind] // each)):
            if time.monotonic() - begun > 60 * minutes * UNTIL[kind]:
                return
            yield number

    if any(counts[kind] for kind in ("lines", "processes")):
        stop_training()
    weight = sum(share for share, _ in PARSERS.values())
    for turn in numbers("parsers", weight):
        for door, (share, _) in PARSERS.items():
            for number in range(turn * share, (turn + 1) * share):
                tally.try_("parsers", f"parsers {door} {number}", partial(parse, door, number), every=50)
    known = calls(tally.home / "inside")
    for number in numbers("calls"):
        tally.try_("calls", f"calls {number}", partial(call, number, known), every=20)
    for number in numbers("lines"):
        tally.try_("lines", f"lines {number}", partial(command, number))
    for number in numbers("processes"):
        tally.try_("processes", f"processes {number}", partial(process, number))


def again(name: str) -> None:
    """Try one input again, without catching what it raises."""
    kind, _, rest = name.partition(" ")
    folder = Path(tempfile.mkdtemp())
    if kind == "parsers":
        door, _, number = rest.rpartition(" ")
        parse(door, int(number), folder)
    elif kind == "calls":
        call(int(rest), calls(folder), folder)
    else:
        stop_training()
        (command if kind == "lines" else process)(int(rest), folder)


def main() -> None:
    """Try the inputs, print what was found, and write it."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind, count in zip(KINDS, (1_000_000, 100_000, 10_000, 500), strict=True):
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, whatever the counts")
    parser.add_argument("--again", help="one input to try again")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    about = provenance(torch.device("cpu")) | {"command": f"python -m {MODULE} {shlex.join(sys.argv[1:])}"}
    if options.again:
        again(options.again)
        return
    counts = {kind: getattr(options, kind) for kind in KINDS}
    with tempfile.TemporaryDirectory() as place:
        tally = Tally(Path(place))
        tally.longest = LONGEST
        signal.signal(signal.SIGALRM, too_long)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
        fuzz(tally, counts, first=options.first, minutes=options.minutes)
    for name, where in tally.outside.items():
        print(f"--- {name} wrote outside: {where}")
    found = {
        "inputs": dict(tally.counts),
        "refused_with_our_error": dict(tally.ours),
        "seconds": {kind: round(seconds, 1) for kind, seconds in tally.seconds.items()},
        "tracebacks": len(tally.tracebacks),
        "writes_outside": len(tally.outside),
        "findings": sorted({*tally.tracebacks, *tally.outside}),
    }
    print(json.dumps({**found, "findings": found["findings"][:20]}))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_whole(options.out / "fuzz.json", (json.dumps(found | {"provenance": about}, indent=2) + "\n").encode())
    sys.exit(bool(tally.tracebacks or tally.outside))


if __name__ == "__main__":
    main()
