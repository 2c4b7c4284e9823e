"""Data sets in their usual schema: Parquet files in a folder, or the Hugging Face Hub by name.

A folder of data sets holds one folder for each (``DATA/cifar100/train-00000-of-00002.parquet``), as the Hub's own
copies do. Nothing is downloaded unless the place of the data is ``hub`` or ``hub:OWNER/NAME``.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from unweave.errors import UsageError

HUB = "hub"
# What the same part is called in different copies.
PART_NAMES = {"valid": ("valid", "validation", "val"), "test": ("test",), "train": ("train",)}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a data set (train, valid, test): its table, and a fingerprint of its content."""

    table: pa.Table
    fingerprint: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> Any:
        """Return a column as a NumPy array."""
        return self.table[name].to_numpy()


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a data set lies and what it must hold.

    ``rows`` are the sizes of a complete copy; a part of another size is refused, except where a benchmark says that
    subsets are welcome by leaving it out.
    """

    folder: str
    hub: str
    columns: tuple[str, ...]
    rows: Mapping[str, int] = field(default_factory=dict)

    def read(self, data: str | None, part: str, *, complete: bool = True) -> Part:
        """Read one part; ``complete=False`` takes any number of rows."""
        if data is None:
            raise UsageError(
                f"This benchmark needs the data set {self.folder}. {self._how_to_get()} Then pass --data FOLDER (or "
                "set UNWEAVE_DATA); with the extra `datasets` installed, --data hub takes it from the Hub."
            )
        hub, _, name = data.partition(":")
        found = self._from_hub(name or self.hub, part) if hub == HUB else self._from_folder(Path(data), part)
        missing = [column for column in self.columns if column not in found.table.column_names]
        if missing:
            raise UsageError(
                f"{self.folder} ({part}) lacks the column {missing[0]!r}; it has {found.table.column_names}. "
                f"It should have the columns of {self.hub}."
            )
        expected = self.rows.get(part)
        if complete and expected is not None and len(found) != expected:
            raise UsageError(
                f"{self.folder} ({part}) has {len(found):,} rows, but should have {expected:,}. {self._how_to_get()}"
            )
        return found

    def _from_folder(self, data: Path, part: str) -> Part:
        files = self._files(data, part)
        if not files:
            raise UsageError(
                f"No {part} part of {self.folder} under {data}: expected Parquet files such as "
                f"{data / self.folder / f'{part}-00000-of-00001.parquet'}. {self._how_to_get()}"
            )
        digest = hashlib.sha256()
        tables = []
        for file in files:
            digest.update(file.read_bytes())
            try:
                tables.append(parquet.read_table(file))
            except (pa.ArrowInvalid, OSError) as error:
                raise UsageError(f"{file} is no Parquet file that can be read: {error}") from error
        try:
            return Part(table=pa.concat_tables(tables), fingerprint=digest.hexdigest())
        except pa.ArrowInvalid as error:
            raise UsageError(f"The {part} files of {self.folder} do not fit together: {error}") from error

    def _files(self, data: Path, part: str) -> list[Path]:
        """Find the part's files in the data set's own folder, or in the given folder if it is that."""
        for home in [data / self.folder, *sorted(data.glob(f"{self.folder}-*")), data]:
            for name in PART_NAMES[part]:
                files = sorted({*home.glob(f"{name}.parquet"), *home.glob(f"{name}-*.parquet")})
                files = files or sorted(home.glob(f"*/{name}-*.parquet") if home != data else [])
                if files:
                    return files
        return []

    def _from_hub(self, name: str, part: str) -> Part:
        try:
            import datasets
        except ImportError:
            raise UsageError(
                "Reading from the Hub needs the package datasets: pip install 'unweave[datasets]'."
            ) from None
        known = datasets.get_dataset_split_names(name)
        split = next((word for word in PART_NAMES[part] if word in known), None)
        if split is None:
            raise UsageError(f"{name} on the Hub has no part {part!r}; it has {', '.join(known)}.")
        loaded = datasets.load_dataset(name, split=split)
        for column, kind in loaded.features.items():
            if isinstance(kind, datasets.Image):
                loaded = loaded.cast_column(column, datasets.Image(decode=False))
        return Part(table=loaded.with_format("arrow")[:], fingerprint=str(loaded._fingerprint))

    def _how_to_get(self) -> str:
        return f"It is {self.hub} on the Hugging Face Hub (`hf download --repo-type dataset {self.hub}`)."


def cache_folder() -> Path:
    """Return where decoded data is kept between runs: ``UNWEAVE_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("UNWEAVE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unweave"


def decode_images(part: Part, column: str, *, size: int) -> Any:
    """Return a column of encoded images as bytes of shape (images, 3, size, size), decoded once and then kept.

    Images of another size are cropped to the middle square and resized.
    """
    file = cache_folder() / f"{part.fingerprint[:32]}-{column}-{size}.npy"
    shape = (len(part), 3, size, size)
    if file.exists():
        try:
            found = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError):
            found = None
        if found is not None and found.shape == shape and found.dtype == np.uint8:
            return found
    pixels = np.empty(shape, dtype=np.uint8)
    encoded = part.table[column]
    with ThreadPoolExecutor() as pool:
        for row, image in enumerate(pool.map(lambda entry: _decode(entry, size), encoded, chunksize=256)):
            pixels[row] = image
    _keep(file, pixels)
    return pixels


def _decode(entry: Any, size: int) -> Any:
    from PIL import Image, ImageOps

    content = entry.as_py()
    try:
        image = Image.open(io.BytesIO(content["bytes"] if isinstance(content, Mapping) else content)).convert("RGB")
    except (OSError, TypeError, KeyError, ValueError) as error:
        raise UsageError(f"An image of the data set cannot be decoded: {error}") from error
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def _keep(file: Path, pixels: Any) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as target:
            np.save(target, pixels, allow_pickle=False)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        warnings.warn(f"Decoded images cannot be kept in {file.parent} ({error}); set UNWEAVE_CACHE.", stacklevel=3)


def few_of_each(groups: Any, count: int) -> Any:
    """Return the positions of the first ``count`` samples of every group, in order.

    >>> few_of_each(np.array([3, 3, 5, 3, 5]), 2).tolist()
    [0, 1, 2, 4]
    """
    groups = np.asarray(groups)
    order = np.argsort(groups, kind="stable")
    _, first, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    rank = np.arange(len(groups)) - np.repeat(first, sizes)
    return np.sort(order[rank < count])


def require_labels(values: Any, known: int, what: str) -> None:
    """Refuse labels that are not 0, 1, …, known − 1.

    >>> require_labels(np.array([0, 7]), 5, "fine_label of cifar100")
    Traceback (most recent call last):
    unweave.errors.UsageError: Row 1 has the fine_label of cifar100 7, but there are 5 (0 to 4).
    """
    values = np.asarray(values)
    bad = np.flatnonzero((values < 0) | (values >= known))
    if len(bad):
        raise UsageError(f"Row {bad[0]} has the {what} {values[bad[0]]}, but there are {known} (0 to {known - 1}).")
