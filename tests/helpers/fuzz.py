"""The fuzzing harness: odd files, calls and command lines must end in our own errors, and write nothing outside.

    make fuzz                                          # all counts, into results/fuzz
    make fuzz FUZZ='--jobs 16 --minutes 9'             # shared by 16 processes, as many as fit into the time
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
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from functools import cache, partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import scipy.stats  # what some inputs import late is imported here once, for all of them
import sklearn.metrics
import sklearn.model_selection
import torch
import typer

from tests.helpers.fuzz_calls import calls
from tests.helpers.fuzz_child import stop_training
from tests.helpers.fuzz_lines import line, prepare
from tests.helpers.fuzz_parsers import PARSERS
from tests.helpers.fuzz_tally import KINDS, Stopped, Tally, join
from tests.helpers.places import ROOT
from unweave.requests import unpickling
from unweave.storage import provenance, write_whole

try:
    import datasets
except ImportError:  # its doors refuse their inputs then
    datasets = None

MODULE = "tests.helpers.fuzz"
LATE = (scipy.stats, sklearn.metrics, sklearn.model_selection)
CODES = (0, 1, 2, 130)
PARTS = 100  # in which the inputs of every kind are tried, so that a run that is stopped has tried some of each
EVERY = 10.0  # seconds between two writings of the result
MEMORY = Path("/dev/shm")  # a folder in memory, where the system has one: inputs are many small files


# One input of each kind


def parse(door: str, number: int, folder: Path) -> None:
    """Read one odd file, in a folder of its door."""
    place = folder / door.replace(" ", "-")
    place.mkdir(exist_ok=True)
    PARSERS[door][1](Random(f"parsers {door} {number}"), place)


def call(number: int, known: list[tuple[int, Any]], folder: Path) -> None:
    """Make one odd call."""
    chance = Random(f"calls {number}")
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes a millisecond for devices that are not there
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
        [sys.executable, "-m", "tests.helpers.fuzz_child", str(folder), *words],
        cwd=folder,
        capture_output=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "MPLCONFIGDIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
        },
        timeout=600,
        check=False,
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode not in CODES or "Traceback (most recent" in text or "WROTE OUTSIDE" in text:
        raise AssertionError(f"exit code {done.returncode}: {shlex.join(words)}: {text[-2000:]}")


# Many inputs


def make_ready() -> None:
    """Do once what every input would do again, and switch off the Hub and training."""
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    if datasets is not None:
        datasets.config.HF_HUB_OFFLINE = True
    stop_training()
    typer.main.get_command_from_info = cache(typer.main.get_command_from_info)  # a process runs one command
    unpickling.subprocess = SimpleNamespace(run=_forked)  # type: ignore[attr-defined]


def _forked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Read pickled weights in a fork of this process. A process of its own would import torch again."""
    with tempfile.TemporaryFile("w+", dir=Path(command[-1]).parent) as said:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with contextlib.redirect_stderr(said):
                    code = unpickling.read_and_write(*command[-2:])
                said.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), "", said.read())


def fuzz(
    tally: Tally,
    counts: dict[str, int],
    *,
    first: int = 0,
    minutes: float = math.inf,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Try so many inputs of each kind, or as many as fit into the time: a hundredth of every kind, then the next.

    The first of several processes has the ``share`` (0, 3) if there are three: every third input.
    """
    end = time.monotonic() + 60 * minutes
    known = calls(tally.inside)
    each = {"parsers": sum(weight for weight, _ in PARSERS.values())}  # inputs of one number; of other kinds one

    def try_(kind: str, number: int) -> None:
        if kind == "parsers":
            for door, (weight, _) in PARSERS.items():
                for place in range(number * weight, (number + 1) * weight):
                    tally.try_(kind, f"parsers {door} {place}", partial(parse, door, place), every=50)
        elif kind == "calls":
            tally.try_(kind, f"calls {number}", partial(call, number, known), every=20)
        else:
            work = command if kind == "lines" else process
            tally.try_(kind, f"{kind} {number}", partial(work, number))

    for part in range(PARTS):
        for kind in KINDS:
            numbers = -(-counts[kind] // each.get(kind, 1))
            for number in range(numbers * part // PARTS, numbers * (part + 1) // PARTS):
                if time.monotonic() > end:
                    return
                if number % share[1] == share[0]:
                    try_(kind, first + number)


def fuzz_together(options: argparse.Namespace, home: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Share the inputs among forked processes, and return what all of them found, also when they are told to end.

    What they have found so far is written now and then, so that a run that is killed leaves a result.
    """
    children: dict[int, Path] = {}
    for number in range(options.jobs):
        folder = home / str(number)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            _be_share(options, folder, number)
        children[child] = folder

    def end(*_: Any) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, end)
    ended: list[dict[str, Any]] = []
    next_writing = 0.0
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            ended.append(Tally.saved(children.pop(child), ended=os.waitstatus_to_exitcode(status)))
            continue
        if time.monotonic() > next_writing:
            running = [Tally.saved(folder, ended=0) for folder in children.values()]
            write(join([*ended, *running]) | about, options.out)
            next_writing = time.monotonic() + EVERY
        time.sleep(0.2)
    return join(ended) | about


def write(found: dict[str, Any], out: Path | None) -> None:
    """Write a result into a folder."""
    if out:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "fuzz.json", (json.dumps(found, indent=2) + "\n").encode())


def _be_share(options: argparse.Namespace, folder: Path, number: int) -> None:
    """Try one share of the inputs in this process, and end it."""

    code = 1
    tally = Tally(folder)
    tally.limit()
    signal.signal(signal.SIGTERM, tally.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it
    try:
        counts = {kind: getattr(options, kind) for kind in KINDS}
        with contextlib.suppress(Stopped):
            fuzz(tally, counts, first=options.first, minutes=options.minutes, share=(number, options.jobs))
        tally.save()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


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
        (command if kind == "lines" else process)(int(rest), folder)


def main() -> None:
    """Try the inputs, print what was found, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind, count in zip(KINDS, (1_000_000, 100_000, 10_000, 500), strict=True):
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, whatever the counts")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the inputs")
    parser.add_argument("--again", help="one input to try again")
    parser.add_argument("--join", type=Path, nargs="*", help="results of several runs to join instead of trying inputs")
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a device cannot be used after a fork, and the inputs do not need one
    sys.dont_write_bytecode = True
    about = provenance(torch.device("cpu")) | {"command": f"python -m {MODULE} {shlex.join(sys.argv[1:])}"}
    if options.join:
        found = join([json.loads(file.read_text()) for file in options.join])
    else:
        make_ready()
        if options.again:
            again(options.again)
            return
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
            found = fuzz_together(options, Path(place), {"provenance": [about]})
    print(json.dumps({name: part[:20] if name == "findings" else part for name, part in found.items()}))
    write(found, options.out)
    sys.exit(bool(found["findings"]))


if __name__ == "__main__":
    main()
