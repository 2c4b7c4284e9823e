"""Rows on disk under column names, read in batches so that data may be larger than memory."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset

AT_ONCE = 1024  # rows of a batch
BYTES_AT_ONCE = 2**20  # of the rows of a batch, as they lie on disk: Python values take up to fifty times as much


class DataTable:
    """The rows of one data set.

    ``label_names`` gives the names of columns that hold classes as numbers. ``folder`` is where relative paths of
    images begin. ``by_folder`` says that the labels are names of folders.
    """

    def __init__(
        self,
        name: str,
        source: dataset.Dataset,
        *,
        folder: Path | None = None,
        label_names: Mapping[str, Sequence[str]] | None = None,
        by_folder: bool = False,
    ) -> None:
        self.name, self.source, self.folder, self.by_folder = name, source, folder or Path(), by_folder
        self.schema: pa.Schema = source.schema
        self.label_names = label_names if label_names is not None else _names_in(self.schema.metadata or {})
        self._rows: int | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def __len__(self) -> int:
        if self._rows is None:
            with self._explained():
                rows, inside = int(self.source.count_rows()), self._rows_inside()
            if rows < 0 or inside not in (None, rows):
                raise self._odd_header(rows, inside)
            if rows == 0:
                raise UsageError(f"{self.name} has no rows.")
            self._rows = rows
        return self._rows

    def _rows_inside(self) -> int | None:
        """Return how many rows the parts of Parquet files have. None: the files are others, or none."""
        if not self._is_parquet:
            return None
        return sum(_rows_of_parts(fragment.metadata) for fragment in self.source.get_fragments())

    @property
    def _is_parquet(self) -> bool:
        from pyarrow import dataset

        files = isinstance(self.source, dataset.FileSystemDataset)
        return files and self.source.format.default_extname == "parquet"

    def _odd_header(self, said: int, found: int | None) -> UsageError:
        but = "" if found is None else f", but {found} are there"
        return UsageError(f"{self.name} says that it has {said} rows{but}. The file is damaged; write it again.")

    def require(self, column: str) -> str:
        """Return the name of a column; suggest the nearest if there is none."""
        if column not in self.columns:
            near = difflib.get_close_matches(column, self.columns, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{self.name} has no column {column!r}.{hint} Its columns: {', '.join(self.columns)}.")
        return column

    def kind(self, column: str) -> pa.DataType:
        """Return the type of a column."""
        return self.schema.field(column).type

    def batches(self, columns: Sequence[str], *, size: int = AT_ONCE) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns in the order of the data. Little is read ahead, to save memory."""
        from pyarrow import dataset as arrow

        found = 0
        fitting = max(1, min(size, BYTES_AT_ONCE // max(1, self._bytes_per_row)))
        how: dict[str, Any] = {
            "batch_size": fitting,
            "batch_readahead": 1,
            "fragment_readahead": 1,
            "use_threads": False,
        }
        if self._is_parquet:
            how["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        with self._explained():
            for batch in self.source.to_batches(columns=list(columns), **how):
                batch.validate(full=True)  # text that is no UTF-8 would raise later, wherever it is used
                found += len(batch)
                if len(batch):
                    yield batch
        if found != len(self):  # else rows to forget could be missing unnoticed
            raise self._odd_header(len(self), found)

    @cached_property
    def _bytes_per_row(self) -> int:
        """How many bytes a row takes, on average; 0 if that is not known."""
        with self._explained():
            try:
                fragments = list(self.source.get_fragments())
                parquet = all(hasattr(fragment, "metadata") for fragment in fragments)
                size = sum(_uncompressed(one) if parquet else Path(one.path).stat().st_size for one in fragments)
            except (AttributeError, NotImplementedError, FileNotFoundError):  # rows in memory have no file
                return 0
        return size // max(1, len(self))

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column. It is for labels and ids, which are small."""
        import pyarrow as pa

        return pa.chunked_array([batch.column(0) for batch in self.batches([name])], type=self.kind(name))

    def take(self, rows: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return a few rows as dictionaries."""
        with self._explained():
            taken = self.source.take(list(rows), columns=list(columns or self.columns))
            taken.validate(full=True)
            found: list[dict[str, Any]] = taken.to_pylist()
        return found

    def _explained(self) -> _Explained:
        return _Explained(self.name)


class _Explained:
    """Say in one sentence why data cannot be read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, pa.ArrowException | OSError):
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(f"{self.name} cannot be read: {reason}") from error


def _rows_of_parts(about: Any) -> int:
    return sum(about.row_group(number).num_rows for number in range(about.num_row_groups))


def _uncompressed(fragment: Any) -> int:
    """Return how many bytes a Parquet file takes once it is decompressed."""
    about = fragment.metadata
    return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))


def _names_in(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the class names that the Hub's files carry."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return {}
