"""Decode the images of a data set once, and keep the array between runs."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from unweave.errors import UsageError
from unweave.lab.benchmarks.sources import DataPart
from unweave.lab.packages import require_package

MODES = {1: "L", 3: "RGB"}


def cache_folder() -> Path:
    """Return the folder for decoded data: ``UNWEAVE_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("UNWEAVE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unweave"


def decode_images(part: DataPart, column: str, *, size: int, channels: int = 3) -> Any:
    """Return a column of encoded images as bytes of shape (images, channels, size, size).

    Images of another size are cropped to the middle square and resized. The result is kept in the cache folder.
    """
    grey = "-grey" if channels == 1 else ""
    file = cache_folder() / f"{part.fingerprint[:32]}-{column}-{size}{grey}.npy"
    shape = (len(part), channels, size, size)
    if file.exists():
        try:
            found = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError):
            found = None
        if found is not None and found.shape == shape and found.dtype == np.uint8:
            return found
    require_package("PIL", "Decoding images")
    pixels = np.empty(shape, dtype=np.uint8)
    encoded = part.table[column]

    def decode(row: int) -> None:
        pixels[row] = _decode(row, encoded[row].as_py(), size, channels)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(decode, range(len(part))):
            pass  # raises a decoder's error
    _keep(file, pixels)
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
        with partial.open("wb") as target:
            np.save(target, pixels, allow_pickle=False)
        partial.replace(file)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        warnings.warn(
            f"Decoded images cannot be kept in {file.parent} ({error}). Set UNWEAVE_CACHE to another folder.",
            stacklevel=3,
        )
