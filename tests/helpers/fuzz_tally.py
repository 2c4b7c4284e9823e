"""What the fuzzing harness has tried, and what it found."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from tests.helpers.fuzz_watch import Canary, Watch
from unweave import RunError, UsageError

KINDS = ("parsers", "calls", "lines", "processes")
OURS = (UsageError, RunError)
LONGEST, MEMORY = 300, 8 * 2**30  # seconds and bytes that an input may take
SAVED, LAST, EVERY = "tally.json", "last", 5.0  # seconds between two savings
SHOWN = 3  # tracebacks of one cause that are printed


class Stopped(BaseException):
    """The run was asked to end (SIGTERM)."""


class TooLong(BaseException):
    """An input took too long. Nothing that the package catches."""


def too_long(*_: Any) -> None:
    """End an input that takes too long, as an alarm."""
    raise TooLong(f"It took more than {LONGEST} seconds.")


class Tally:
    """Counts inputs, and keeps what was found."""

    def __init__(self, home: Path) -> None:
        self.home, self.inside, self.canary = home, home / "inside", Canary(home)
        # matplotlib keeps a list of fonts for itself
        self.watch = Watch((matplotlib.get_configdir(), matplotlib.get_cachedir()))
        self.counts: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.longest = 0  # seconds that an input may take; 0: any number
        self.stopping = False  # the run was asked to end
        self.tracebacks: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.next_saving = 0.0

    def limit(self) -> None:
        """Limit the time and the memory that an input may take in this process."""
        self.longest = LONGEST
        signal.signal(signal.SIGALRM, too_long)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))

    def stop(self, *_: Any) -> None:
        """End the run, as a handler of SIGTERM. Later signals are ignored: one would interrupt what is written now."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.stopping = True
        raise Stopped

    def try_(self, kind: str, name: str, work: Callable[[Path], None], *, every: int = 1) -> None:
        """Try one input in a folder that is emptied after so many inputs.

        An input that is interrupted because the run should end is not counted, whatever the interruption raises in it.
        """
        folder = self.inside
        if self.counts[kind] % every == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "linked.json").symlink_to(self.canary.place / "file.json")
            (folder / "linked").symlink_to(self.canary.place / "folder")
        (self.home / LAST).write_text(name)  # should the process die
        begun = time.perf_counter()
        signal.alarm(self.longest)
        tempfile.tempdir = str(folder)
        try:
            with self.watch.inside(folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work(folder)
        except OURS:
            self.ours[kind] += not self.stopping
        except (Exception, TooLong) as error:
            if not self.stopping:
                self._found(name, error)
        finally:
            signal.alarm(0)
            tempfile.tempdir = None
        if self.stopping:
            raise Stopped
        self.counts[kind] += 1
        self.seconds[kind] += time.perf_counter() - begun
        if self.watch.outside:
            self.outside[name] = self.watch.outside.pop()
            self.watch.outside.clear()
            print(f"--- {name} wrote outside: {self.outside[name]}", flush=True)
        if self.counts[kind] % 100 == 0 and not self.canary.is_whole():
            self.outside[name] = "a file outside the folder was changed"
            shutil.rmtree(self.canary.place)
            self.canary = Canary(self.home)
        if time.monotonic() > self.next_saving:
            self.save()

    def _found(self, name: str, error: BaseException) -> None:
        """Keep a traceback, and print it if its cause is new."""
        self.tracebacks.setdefault(name, traceback.format_exc())
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/unweave/" in frame.filename]
        cause = f"{type(error).__name__} {ours[-1].filename} {ours[-1].lineno}" if ours else type(error).__name__
        self.causes[cause] += 1
        if self.causes[cause] <= SHOWN:
            print(f"--- {name}\n{self.tracebacks[name]}", flush=True)

    def found(self) -> dict[str, Any]:
        """Return the counts and the findings."""
        return {
            "inputs": dict(self.counts),
            "refused_with_our_error": dict(self.ours),
            "seconds": dict(self.seconds),
            "tracebacks": len(self.tracebacks),
            "writes_outside": len(self.outside),
            "findings": sorted({*self.tracebacks, *self.outside}),
        }

    def save(self) -> None:
        """Write what was found so far, whole: another process may read it at any time."""
        (self.home / f"{SAVED}.new").write_text(json.dumps(self.found()))
        (self.home / f"{SAVED}.new").replace(self.home / SAVED)
        self.next_saving = time.monotonic() + EVERY

    @staticmethod
    def saved(home: Path, *, ended: int) -> dict[str, Any]:
        """Return what a process had saved when it ended. If it did not end well, its last input is a finding."""
        found: dict[str, Any] = join([])
        with contextlib.suppress(FileNotFoundError):
            found = json.loads((home / SAVED).read_text())
        if ended:
            name = (home / LAST).read_text() if (home / LAST).exists() else "the start"
            print(f"--- {name} ended its process ({ended})", file=sys.stderr, flush=True)
            found = {**found, "tracebacks": found["tracebacks"] + 1, "findings": sorted({*found["findings"], name})}
        return found


def join(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the findings of several processes or runs as one."""
    found: dict[str, Any] = {}
    for name in ("inputs", "refused_with_our_error", "seconds"):
        found[name] = {kind: round(sum(part[name].get(kind, 0) for part in parts), 1) for kind in KINDS}
    for name in ("tracebacks", "writes_outside"):
        found[name] = sum(part[name] for part in parts)
    found["findings"] = sorted(one for part in parts for one in part["findings"])
    found["provenance"] = [about for part in parts for about in part.get("provenance", [])]
    return found
