"""Decoded samples on disk, in a file without a name: private, and gone when the process ends, however it ends."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from unweave.errors import RunError


class Spool:
    """Arrays of one type, kept on disk and read by number.

    >>> import torch
    >>> kept = Spool(np.int32)
    >>> kept.add([np.array([1, 2, 3]), np.array([4])])
    >>> [row.tolist() for row in kept.read(torch.tensor([1, 0]))], kept.lengths.tolist()
    ([[4], [1, 2, 3]], [3, 1])
    """

    def __init__(self, kind: np.typing.DTypeLike) -> None:
        self.kind = np.dtype(kind)
        with _room(), tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._lengths = array("q")
        self._starts: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, rows: Iterable[np.ndarray[Any, Any]]) -> None:
        """Append rows."""
        whole = [np.ascontiguousarray(row, dtype=self.kind).reshape(-1) for row in rows]
        self._lengths.extend(map(len, whole))
        self._starts = None
        content = np.concatenate(whole).data.cast("B") if sum(map(len, whole)) else memoryview(b"")
        with _room():
            while content:
                content = content[os.write(self._file, content) :]

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """The number of entries of every row."""
        return np.array(self._lengths, dtype=np.int64)

    def read(self, rows: Tensor) -> Iterator[np.ndarray[Any, Any]]:
        """Yield rows. Several processes may read at once."""
        if self._starts is None:
            self._starts = np.concatenate([[0], np.cumsum(self.lengths)])
        for row in rows.tolist():
            start, end = (int(self._starts[place]) * self.kind.itemsize for place in (row, row + 1))
            yield np.frombuffer(os.pread(self._file, end - start, start), dtype=self.kind)


@contextmanager
def _room() -> Iterator[None]:
    """Say where room is missing when a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(
            f"There is no room in {tempfile.gettempdir()} for a decoded copy of the data ({error.strerror}). Set "
            "TMPDIR to a folder on a larger disk."
        ) from error
