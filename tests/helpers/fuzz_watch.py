"""Who writes where: what the fuzzing harness watches while it tries an input. It imports nothing that takes time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
SYSTEM = ("/dev/null", "/proc")  # what the system keeps for itself: statistics of a process


class Watch:
    """Notes every write of this process outside the folders that are allowed, as Python reports it to audit hooks."""

    def __init__(self, elsewhere: Iterable[str] = ()) -> None:
        self.elsewhere = (*SYSTEM, *map(os.path.realpath, elsewhere))
        self.allowed: tuple[str, ...] = self.elsewhere
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
        self.allowed, self.on = (*self.elsewhere, os.path.realpath(folder)), True
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
