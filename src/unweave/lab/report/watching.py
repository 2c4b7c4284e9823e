"""Keep the report of a study up to date while the study runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from unweave.errors import RunError, UsageError
from unweave.lab.report.write import Report, check_target, write_report
from unweave.lab.study import Store
from unweave.runs import UNFINISHED

SECONDS = 5.0  # between two looks at the folder, and before the open page loads itself again
NEWS = ("study.json", "results.parquet", "cells/*/scores.json", "cells/*/against-retrain.json", "failed/*.json")
State = tuple[tuple[str, int], ...]


def watch_report(
    folder: Path, *, say: Callable[[str], None], against_paper: bool = False, seconds: float = SECONDS
) -> None:
    """Write the report of a study again whenever the study has news, until Ctrl-C.

    The folder need not be there yet. What cannot be read yet is read later.

    Args:
        folder: The study's folder.
        say: Prints a line.
        against_paper: Whether the paper's numbers stand beside ours.
        seconds: The time between two looks.

    Raises:
        UsageError: Something else lies where the report belongs.
        KeyboardInterrupt: The user stopped it. The page then no longer loads itself again.
    """
    check_target(folder)
    seen, told, report = None, "", None
    try:
        while True:
            now = state(folder)
            if now != seen:
                try:
                    report = _refresh(
                        folder, against_paper=against_paper, seconds=seconds, first=report is None, say=say
                    )
                    seen = now
                except (UsageError, RunError, OSError) as error:
                    told = _wait(folder, error, told, say)
            time.sleep(seconds)
    finally:
        if report is not None:
            with suppress(UsageError, RunError, OSError):  # such as a folder that was removed meanwhile
                write_report(folder, against_paper=against_paper, figures=False)


def state(folder: Path) -> State:
    """Return what tells that a study has news: its files with their times, and its unfinished runs."""
    found = [path for form in NEWS for path in folder.glob(form)]
    files = [(path.relative_to(folder).as_posix(), _time_of(path)) for path in found]
    return (*sorted(files), *((name, 0) for name in unfinished_runs(folder)))


def _time_of(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it was just removed or renamed
        return 0


def unfinished_runs(folder: Path) -> list[str]:
    """Return the names of the runs that are under way, or were stopped."""
    return sorted(path.name.removesuffix(UNFINISHED) for path in folder.glob(f"cells/*{UNFINISHED}"))


def _refresh(folder: Path, *, against_paper: bool, seconds: float, first: bool, say: Callable[[str], None]) -> Report:
    words = _words(folder)
    live: dict[str, Any] = {"seconds": seconds, "words": words}
    report = write_report(folder, against_paper=against_paper, figures=False, live=live)
    if first:
        say(f"Page: {report.page}. It reloads itself. Ctrl-C stops.")
    say(words)
    return report


def _words(folder: Path) -> str:
    """Say how far the study is."""
    store, open_runs = Store.open(folder), unfinished_runs(folder)
    done, failed = len(store.finished()), len(store.failures())
    parts = [f"{done} run{'' if done == 1 else 's'} finished", *([f"{failed} failed"] if failed else [])]
    if open_runs:
        parts.append(f"under way or stopped: {', '.join(open_runs[:3])}{' and more' if len(open_runs) > 3 else ''}")
    return f"{'; '.join(parts)}. Written at {time.strftime('%H:%M:%S')}."


def _wait(folder: Path, error: Exception, told: str, say: Callable[[str], None]) -> str:
    """Say why there is no page yet, once for each reason."""
    has_study = (folder / "study.json").is_file()
    words = f"Waiting for the first result in {folder}." if has_study else f"Waiting for a study in {folder}."
    if has_study and any(folder.glob("cells/*/scores.json")):
        words = f"Waiting: {error}"
    if words != told:
        say(words)
    return words
