"""Who works on what, where several processes share a study's folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Claim:
    """The right to work on something, with a note of when the work was begun and not brought to an end."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def died_since(self, moment: float) -> bool:
        """Tell whether a process that began since this moment died at the work."""
        self.file.seek(0)
        text = self.file.read()
        return bool(text) and float(text) >= moment

    @contextmanager
    def working(self) -> Iterator[None]:
        """Note that the work is begun; whatever ends it in good order removes the note."""
        self.file.truncate(0)
        self.file.write(f"{time.time()}\n")
        self.file.flush()
        try:
            yield
        finally:
            self.file.truncate(0)


class Locks:
    """Locks of the system, on open files in a folder: a lock ends with its process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def claim(self, name: str) -> Iterator[Claim | None]:
        """Hold the right to work on something; yields None where another process holds it."""
        import fcntl

        with (self.folder / f"{name}.lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield None
                return
            yield Claim(file)

    @contextmanager
    def wait_for(self, name: str) -> Iterator[None]:
        """Hold the right to work on something, waiting for whoever holds it."""
        import fcntl

        with (self.folder / f"{name}.lock").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
