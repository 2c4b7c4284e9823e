"""Data sets in their usual schema: Parquet files in a folder, or the Hugging Face Hub by name.

A folder of data sets has one folder for each (``DATA/cifar100/train-00000-of-00002.parquet``), like the copies on the
Hub. Nothing is downloaded unless the location of the data is ``hub`` or ``hub:OWNER/NAME``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.parquet_files import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

HUB = "hub"
# The names of a part in different copies.
PART_NAMES = {"valid": ("valid", "validation", "val"), "test": ("test",), "train": ("train",)}


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """One part of a data set (train, valid, test): its table and a fingerprint of its content."""

    table: pa.Table
    fingerprint: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> Any:
        """Return a column as a NumPy array."""
        return self.table[name].to_numpy()

    def words(self, name: str) -> Any:
        """Return a column of names. Numbers are replaced by the names in the metadata of the Hub's copies."""
        column = self.column(name)
        if column.dtype.kind not in "iu":
            return column
        try:
            about = json.loads((self.table.schema.metadata or {}).get(b"huggingface", b"{}"))
            names = about["info"]["features"][name]["names"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            names = None
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise UsageError(
                f"The column {name!r} holds numbers, and the file has no names for them. Use a copy with text there."
            )
        require_labels(column, len(names), name)
        return np.asarray(names, dtype=object)[column]


@dataclass(frozen=True, kw_only=True)
class Source:
    """The location of a data set, and what it must contain.

    ``hub`` is its name on the Hugging Face Hub. ``config`` is the configuration of that copy if it has several; it is
    also a folder in the copy. ``rows`` are the sizes of a complete copy: a part of another size raises an error. A part
    that is not in ``rows`` may have any size.
    """

    folder: str
    hub: str
    columns: tuple[str, ...]
    config: str | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    def read(self, data: str | None, part: str, *, complete: bool = True) -> DataPart:
        """Read one part. ``complete=False`` accepts any number of rows."""
        if data is None:
            raise UsageError(
                f"This benchmark needs the data set {self.folder}. {self.how_to_get()} Then pass --data DATA (or "
                "set UNWEAVE_DATA). With the extra `datasets` installed, --data hub reads it from the Hub."
            )
        hub, _, name = data.partition(":")
        found = self._from_hub(name or self.hub, part) if hub == HUB else self._from_folder(Path(data), part)
        missing = [column for column in self.columns if column not in found.table.column_names]
        if missing:
            raise UsageError(
                f"{self.folder} ({part}) lacks the column {missing[0]!r}; it has {found.table.column_names}. "
                f"It should have the columns of {self.hub}."
            )
        for column in self.columns:
            if found.table[column].null_count:
                row = int(np.flatnonzero(found.table[column].is_null())[0])
                raise UsageError(f"Row {row} of {self.folder} ({part}) has no {column!r}.")
        expected = self.rows.get(part)
        if complete and expected is not None and len(found) != expected:
            raise UsageError(
                f"{self.folder} ({part}) has {len(found):,} rows, but should have {expected:,}. {self.how_to_get()}"
            )
        if len(found) == 0:
            raise UsageError(f"{self.folder} ({part}) is empty. {self.how_to_get()}")
        return found

    def homes(self, data: Path) -> list[Path]:
        """Return the folders that may hold the data set: its own, those with a similar name, and ``data`` itself."""
        named = sorted(folder for folder in data.glob("*/") if _letters(folder.name).startswith(_letters(self.folder)))
        return [data / self.folder, *named, data]

    def how_to_get(self) -> str:
        """Return where to get the data set."""
        return (
            f"It is {self.hub} on the Hugging Face Hub"
            f" (`hf download --repo-type dataset {self.hub} --local-dir DATA/{self.folder}`)."
        )

    def _from_folder(self, data: Path, part: str) -> DataPart:
        require_package("pyarrow", f"Reading {self.folder}")
        import pyarrow as pa

        files = self._files(data, part)
        if not files:
            raise UsageError(
                f"No {part} part of {self.folder} under {data}: expected Parquet files such as "
                f"{data / self.folder / f'{part}-00000-of-00001.parquet'}. {self.how_to_get()}"
            )
        digest = hashlib.sha256()
        tables = []
        for file in files:
            tables.append(read_parquet(file, self.how_to_get()))
            digest.update(file.read_bytes())
        try:
            return DataPart(table=pa.concat_tables(tables), fingerprint=digest.hexdigest())
        except pa.ArrowException as error:
            raise UsageError(f"The {part} files of {self.folder} do not fit together: {error}") from error

    def _files(self, data: Path, part: str) -> list[Path]:
        """Find the part's files in one of the folders, or one level deeper, as in the Hub's copies."""
        for home in self.homes(data):
            inner = [] if home == data else [home / self.config] if self.config else sorted(home.glob("*/"))
            for folder in [home, *inner]:
                for name in PART_NAMES[part]:
                    if files := sorted({*folder.glob(f"{name}.parquet"), *folder.glob(f"{name}-*.parquet")}):
                        return files
        return []

    def _from_hub(self, name: str, part: str) -> DataPart:
        try:
            import datasets
        except ImportError:
            raise UsageError(
                "Reading from the Hub needs the package datasets: pip install 'unweave[datasets]'."
            ) from None
        try:
            known = datasets.get_dataset_split_names(name, self.config)
            split = next((word for word in PART_NAMES[part] if word in known), None)
            if split is None:
                raise UsageError(f"{name} on the Hub has no part {part!r}; it has {', '.join(known)}.")
            loaded = datasets.load_dataset(name, self.config, split=split)
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{name} cannot be read from the Hub: {error}") from error
        for column, kind in loaded.features.items():
            if isinstance(kind, datasets.Image):
                loaded = loaded.cast_column(column, datasets.Image(decode=False))
        return DataPart(table=loaded.with_format("arrow")[:], fingerprint=str(loaded._fingerprint))


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


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
    """Raise an error for labels that are not 0, 1, …, known − 1.

    >>> require_labels(np.array([0, 7]), 5, "fine_label of cifar100")
    Traceback (most recent call last):
    unweave.errors.UsageError: Row 1 has the fine_label of cifar100 7, but there are 5 (0 to 4).
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise UsageError(f"The {what} must be whole numbers, not {values.dtype}.")
    bad = np.flatnonzero((values < 0) | (values >= known))
    if len(bad):
        raise UsageError(f"Row {bad[0]} has the {what} {values[bad[0]]}, but there are {known} (0 to {known - 1}).")
