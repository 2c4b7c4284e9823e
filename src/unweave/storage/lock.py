"""The right of one process to work in a folder."""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from typing import IO

from unweave.errors import UsageError

_OPEN: weakref.WeakSet[Lock] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked process: data loaders may outlive their parent for seconds, and must not keep its locks."""
    for lock in list(_OPEN):
        lock._file.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go)


class Lock:
    """The right to work in a folder. It is the system's, on an open file, so it ends with the process however it ends.

    A file system or a system that knows no locks gives it to everybody.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("ab")
        _OPEN.add(self)
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have finished, and taken the file away, since it was opened here.
            is_there = path.exists() and os.path.samestat(path.stat(), os.fstat(self._file.fileno()))
        except BlockingIOError:
            is_there = False
        except OSError:
            return
        if not is_there:
            self._file.close()
            raise UsageError(f"Another process is working in {path.parent}. Wait for it, or choose another --out.")

    def release(self) -> None:
        """Let others work here, and take the lock's file away."""
        self.path.unlink(missing_ok=True)
        self._file.close()
