"""Decode the images of a data set once, and keep the array between runs."""

from __future__ import annotations

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unweave.data import open_image
from unweave.errors import UsageError
from unweave.lab.benchmarks.pixel_cache import cache_folder, keep, kept, only_one
from unweave.lab.benchmarks.sources import DataPart
from unweave.lab.packages import require_package

MODES = {1: "L", 3: "RGB"}


def decode_images(part: DataPart, column: str, *, size: int, channels: int = 3) -> Any:
    """Return a column of encoded images as bytes of shape (images, channels, size, size).

    Images of another size are cropped to the middle square and resized. The result is kept in the cache folder, which
    processes share: one decodes, and the others wait for it.
    """
    grey = "-grey" if channels == 1 else ""
    file = cache_folder() / f"{part.fingerprint[:32]}-{column}-{size}{grey}.npy"
    shape = (len(part), channels, size, size)
    if (found := kept(file, shape)) is not None:
        return found
    with only_one(file):
        if (found := kept(file, shape)) is not None:
            return found
        pixels = _decoded(part.table[column], shape)
        keep(file, pixels)
    return pixels


def _decoded(encoded: Any, shape: tuple[int, ...]) -> Any:
    require_package("PIL", "Decoding images")
    pixels = np.empty(shape, dtype=np.uint8)
    _, channels, size, _ = shape

    def fill(row: int) -> None:
        pixels[row] = decode(row, encoded[row], size, channels)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(fill, range(len(pixels))):
            pass  # raises a decoder's error
    return pixels


def decode(row: int, encoded: Any, size: int, channels: int) -> Any:
    """Return the bytes of one image, of shape (channels, size, size), from a value of an Arrow column."""
    from PIL import Image, ImageOps

    try:
        content = encoded.as_py()  # fails where a text beside the bytes, such as the file's name, is damaged
        image = open_image(io.BytesIO(content["bytes"] if isinstance(content, Mapping) else content), MODES[channels])
    except (OSError, TypeError, KeyError, ValueError) as error:
        raise UsageError(f"The image in row {row} of the data set cannot be decoded: {error}") from error
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
