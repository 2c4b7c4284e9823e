"""Rows on disk under column names, read in batches so that data may be larger than memory."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset

AT_ONCE = 1024  # rows of a batch


class DataTable:
    """The rows of one data set.

    ``label_names`` gives the names of columns that hold classes as numbers. ``folder`` is where relative paths of
    images begin.
    """

    def __init__(
        self,
        name: str,
        source: dataset.Dataset,
        *,
        folder: Path | None = None,
        label_names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name, self.source, self.folder = name, source, folder or Path()
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
                self._rows = int(self.source.count_rows())
            if self._rows == 0:
                raise UsageError(f"{self.name} has no rows.")
        return self._rows

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

        how: dict[str, Any] = {"batch_size": size, "batch_readahead": 1, "fragment_readahead": 1}
        if isinstance(self.source, arrow.FileSystemDataset) and self.source.format.default_extname == "parquet":
            how["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        with self._explained():
            for batch in self.source.to_batches(columns=list(columns), **how):
                if len(batch):
                    yield batch

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column. It is for labels and ids, which are small."""
        import pyarrow as pa

        return pa.chunked_array([batch.column(0) for batch in self.batches([name])], type=self.kind(name))

    def take(self, rows: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return a few rows as dictionaries."""
        with self._explained():
            found: list[dict[str, Any]] = self.source.take(
                list(rows), columns=list(columns or self.columns)
            ).to_pylist()
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


def _names_in(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the class names that the Hub's files carry."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}
    except (ValueError, KeyError, AttributeError, TypeError):
        return {}
