"""Decode the images of a data set once, and keep the array between runs."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from unweave.errors import UsageError
from unweave.lab.benchmarks.sources import DataPart
from unweave.lab.packages import require_package
from unweave.storage import Lock

MODES = {1: "L", 3: "RGB"}


def cache_folder() -> Path:
    """Return the folder for decoded data: ``UNWEAVE_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("UNWEAVE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unweave"


def decode_images(part: DataPart, column: str, *, size: int, channels: int = 3) -> Any:
    """Return a column of encoded images as bytes of shape (images, channels, size, size).

    Images of another size are cropped to the middle square and resized. The result is kept in the cache folder, which
    processes share: one decodes, and the others wait for it.
    """
    grey = "-grey" if channels == 1 else ""
    file = cache_folder() / f"{part.fingerprint[:32]}-{column}-{size}{grey}.npy"
    shape = (len(part), channels, size, size)
    if (found := _kept(file, shape)) is not None:
        return found
    with _only_one(file):
        if (found := _kept(file, shape)) is not None:
            return found
        pixels = _decoded(part.table[column], shape)
        _keep(file, pixels)
    return pixels


def _kept(file: Path, shape: tuple[int, ...]) -> Any:
    """Return the images of a file, or None if it does not hold them. Processes that read it share its memory."""
    if not file.is_file() or file.is_symlink():
        return None
    try:
        found = np.load(file, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == np.uint8 else None


@contextmanager
def _only_one(file: Path) -> Iterator[None]:
    """Let one process at a time make a file. Where no lock can be had, each process works for itself."""
    with ExitStack() as stack:
        with suppress(OSError, UsageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(Lock(file.with_suffix(".lock"), wait=True))
        yield


def _decoded(encoded: Any, shape: tuple[int, ...]) -> Any:
    require_package("PIL", "Decoding images")
    pixels = np.empty(shape, dtype=np.uint8)
    _, channels, size, _ = shape

    def decode(row: int) -> None:
        pixels[row] = _decode(row, encoded[row].as_py(), size, channels)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(pixels))):
            pass  # raises a decoder's error
    return pixels


def _decode(row: int, content: Any, size: int, channels: int) -> Any:
    from PIL import Image, ImageOps

    try:
        encoded = Image.open(io.BytesIO(content["bytes"] if isinstance(content, Mapping) else content))
        image = encoded.convert(MODES[channels])
    except (OSError, TypeError, KeyError, ValueError) as error:
        raise UsageError(f"The image in row {row} of the data set cannot be decoded: {error}") from error
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _keep(file: Path, pixels: Any) -> None:
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
