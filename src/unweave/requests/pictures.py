"""Images as the checkpoint's processor makes them: each is decoded once and kept on disk, as bytes if possible."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import Data, Stored, open_image
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.packages_needed import need
from unweave.requests.spool import Spool
from unweave.storage import require_plain

AT_ONCE = 64  # images that are decoded together
FIRST = 3  # of what is wrong, so many are shown
GEOMETRY = ("do_resize", "do_center_crop", "do_pad", "do_thumbnail", "do_align_long_axis", "do_convert_rgb", "do_crop")
VALUES = ("do_rescale", "do_normalize")
Array = np.ndarray[Any, Any]


class Pictures(Stored):
    """The images of every row, ready for the model.

    The processor works in two steps. Size and crop are done once and kept, in bytes; scale and normalisation are done
    for each batch. A processor whose steps cannot be taken apart does all of it once.

    Args:
        table: The data.
        column: The column of the images: bytes, files, or numbers.
        labels: The label of every row.
        processor: The checkpoint's processor.
        channels: How many channels the model reads.
        skip_unreadable: Leave out images that cannot be read: `unreadable` has their rows.
    """

    def __init__(
        self, table: DataTable, column: str, labels: Tensor, processor: Any, channels: int, *, skip_unreadable: bool
    ) -> None:
        self._labels, self.processor, self.unreadable = labels, processor, list[int]()
        self.in_bytes, self.shape = True, tuple[int, ...]()
        self.kept = Spool(np.uint8)
        names: list[str] = []
        for batch in table.batches([column], size=AT_ONCE):
            first, values = len(self.kept), batch.column(0).to_pylist()
            images = [read_image(value, table.folder, channels) for value in values]
            bad = [place for place, image in enumerate(images) if image is None]
            names += [f"row {first + place}{_named(values[place])}" for place in bad[: FIRST - len(names)]]
            self.unreadable += [first + place for place in bad]
            self._keep(images)
        if self.unreadable and not skip_unreadable:
            raise UsageError(
                f"{len(self.unreadable)} of the {len(labels)} images in {table.name} cannot be read (first: "
                f"{', '.join(names)}). Repair them, or leave them out with --skip-unreadable."
            )
        if not self.shape:
            raise UsageError(f"None of the {len(labels)} images in {table.name} can be read.")

    def _keep(self, images: Sequence[Any]) -> None:
        """Append images; rows that cannot be read are blank."""
        there = [image for image in images if image is not None]
        if there and not self.shape:
            self._begin(there)
        found: Iterator[Array] = iter(
            self._processed(there, dict.fromkeys(VALUES, False) if self.in_bytes else {}) if there else []
        )
        blank = np.zeros(self.shape or (0,), dtype=self.kept.kind)
        self.kept.add(blank if image is None else next(found) for image in images)

    def _begin(self, images: Sequence[Any]) -> None:
        """See whether the processor's steps can be taken apart, and how large its images are."""
        whole = self._processed(images, {})
        parts = self._processed(images, dict.fromkeys(VALUES, False))
        self.shape = whole.shape[1:]
        self.in_bytes = parts.dtype == np.uint8 and np.array_equal(self._finished(parts), whole)
        blank = [np.zeros(self.shape)] * len(self.kept)  # rows before it that could not be read
        self.kept = Spool(np.uint8 if self.in_bytes else np.float32)
        self.kept.add(blank)

    def _processed(self, images: Sequence[Any], how: dict[str, bool], **more: Any) -> Array:
        try:
            found = self.processor(images=list(images), return_tensors="np", **how, **more)["pixel_values"]
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"The checkpoint's processor cannot make one batch of these images: {_first_line(error)}"
            ) from error
        return np.asarray(found)

    def _finished(self, parts: Array) -> Array:
        """Scale and normalise images that have their size already."""
        off = {name: False for name in GEOMETRY if getattr(self.processor, name, None)}
        return self._processed(list(parts), off, input_data_format="channels_first").astype(np.float32, copy=False)

    def __len__(self) -> int:
        return len(self._labels)

    def labels(self) -> Tensor:
        """Return the label of every row."""
        return self._labels

    def batch(self, rows: Tensor) -> Data:
        """Return the images of these rows as the model takes them."""
        parts = np.stack([row.reshape(self.shape) for row in self.kept.read(rows)])
        pixels = self._finished(parts) if self.in_bytes else parts
        return {"pixel_values": torch.from_numpy(pixels), "labels": self._labels[rows]}


def read_image(value: Any, folder: Path, channels: int) -> Any:
    """Return an image from bytes, from a file, from the Hub's record of both, or from numbers; None if it cannot be.

    >>> read_image([[0, 255], [255, 0]], Path(), 3).size
    (2, 2)
    >>> read_image(b"no image", Path(), 3) is None
    True
    """
    image = need("PIL.Image", "Reading images")
    mode = "L" if channels == 1 else "RGB"
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    try:
        if isinstance(value, list):
            return image.fromarray(np.asarray(value, dtype=np.uint8)).convert(mode)
        return open_image(io.BytesIO(value) if isinstance(value, bytes) else _plain_file(folder / value), mode)
    except (OSError, ValueError, TypeError, OverflowError):
        return None


def _plain_file(path: Path) -> Path:
    """Return a file that can be read to its end: opening a pipe would wait for somebody to write."""
    require_plain(path)
    return path


def _named(value: Any) -> str:
    """Return the file of an image, if it has one, for a message."""
    path = value.get("path") if isinstance(value, dict) else value
    return f", {path}" if isinstance(path, str) else ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
