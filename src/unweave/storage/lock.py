"""The right of one process to work on something: a lock of the operating system on an open file."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Self

from filelock import lock_descriptor, unlock_descriptor

from unweave.errors import UsageError
from unweave.storage.files import open_own, require_plain

# filelock locks files that we open. Its own class FileLock would create a missing folder, and so bring back the folder
# of a run that another process has just renamed. On NFS it would also miss that its file was removed.
_OPEN: weakref.WeakSet[FileIO] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close inherited lock files in a forked process. A data loader may outlive its run and must not keep its locks."""
    for file in list(_OPEN):
        file.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)


class LockedError(UsageError):
    """Another process holds the lock."""


class Lock:
    """A lock on a file. It ends with its process, however that ends.

    Raises `LockedError` if another process holds the lock, or waits for it with ``wait``. A file system without locks
    gives the lock to everybody.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Lock(Path(folder, "lock")), Lock.claim(Path(folder, "lock")) as second:
    ...     print(second)
    None
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self.path, self._note = path, path.with_suffix(".begun")
        while (file := _locked(path, wait=wait)) is None:
            if not wait:
                raise LockedError(f"Another process is working in {path.parent}. Wait for it, or choose another --out.")
        self._file = file

    @classmethod
    @contextmanager
    def claim(cls, path: Path) -> Iterator[Self | None]:
        """Hold the lock inside; yield None if another process holds it."""
        try:
            lock = cls(path)
        except LockedError:
            yield None
            return
        with lock:
            yield lock

    @classmethod
    def tidy(cls, path: Path) -> None:
        """Remove the lock and the note of a process that died when its work was already done."""
        if path.exists() or path.with_suffix(".begun").exists():
            with cls.claim(path) as lock:
                if lock is not None:
                    lock._note.unlink(missing_ok=True)

    def release(self) -> None:
        """Remove the file and let others work. A second call, or a call in a forked process, does nothing."""
        if self._file.closed:
            return
        with suppress(OSError):
            # Before unlocking, so that no other process loses the file that it has locked.
            if sys.platform != "win32" and _is_at(self.path, self._file):
                self.path.unlink()
        with suppress(OSError):
            unlock_descriptor(self._file.fileno())
        self._file.close()
        if sys.platform == "win32":
            with suppress(OSError):  # Windows removes no file that another process has open
                self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def died_since(self, moment: float) -> bool:
        """Tell whether a process died at the work that it began after this moment (of ``time.time()``)."""
        try:
            require_plain(self._note)
            return float(self._note.read_text()) >= moment
        except (OSError, ValueError):
            return False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep a note beside the lock while work goes on. Only a process that dies leaves it behind."""
        with open_own(self._note, "wb") as file:
            file.write(f"{time.time()}\n".encode())
        try:
            yield
        finally:
            self._note.unlink(missing_ok=True)


def _locked(path: Path, *, wait: bool) -> FileIO | None:
    """Return the file, open and locked. Return None if another process holds the lock or has just removed the file."""
    with ExitStack() as stack:
        file = stack.enter_context(open_own(path, "ab"))
        _OPEN.add(file)
        try:
            if not lock_descriptor(file.fileno(), blocking=wait):
                return None
        except OSError:  # this file system has no locks
            pass
        else:
            if not _is_at(path, file):
                return None
        stack.pop_all()
        return file


def _is_at(path: Path, file: FileIO) -> bool:
    """Tell whether the path still names the open file."""
    if sys.platform == "win32":  # which removes no open file
        return True
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except OSError:
        return False
