"""Keep decoded images in a folder that processes share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from unweave.errors import UsageError
from unweave.storage import Lock


def cache_folder() -> Path:
    """Return the folder for decoded data: ``UNWEAVE_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("UNWEAVE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unweave"


def kept(file: Path, shape: tuple[int, ...]) -> Any:
    """Return the images of a file, or None if it does not hold them. Processes that read it share its memory."""
    if not file.is_file() or file.is_symlink():
        return None
    try:
        found = np.load(file, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == np.uint8 else None


@contextmanager
def only_one(file: Path) -> Iterator[None]:
    """Let one process at a time make a file. Where no lock can be had, each process works for itself."""
    with ExitStack() as stack:
        with suppress(OSError, UsageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(Lock(file.with_suffix(".lock"), wait=True))
        yield


def keep(file: Path, pixels: Any) -> None:
    """Write the images to the file whole, or warn if it cannot be written."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # of a process that was killed; of a link, nothing but the link
        with partial.open("xb") as target:
            np.save(target, pixels, allow_pickle=False)
        partial.replace(file)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        warnings.warn(
            f"Decoded images cannot be kept in {file.parent} ({error}). Set UNWEAVE_CACHE to another folder.",
            stacklevel=4,
        )
