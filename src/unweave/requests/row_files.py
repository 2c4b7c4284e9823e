"""What to forget, as positions: from a list or a file of ids, from row numbers, or from a split file.

>>> import pyarrow as pa
>>> from pyarrow import dataset
>>> from unweave.requests.data_table import DataTable
>>> table = DataTable("people", dataset.dataset(pa.table({"id": [17, 18, 17]})))
>>> rows_of_ids(["17"], table, "id", "ids.txt").tolist()
[0, 2]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unweave.data import SUBSETS
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.storage import read_json, refuse_pickled, require_plain

ROW = re.compile(r"-?\d{1,18}", re.ASCII)
FIRST = 3  # of what is wrong, so many are shown
ROWS = "rows:"
Positions = np.ndarray[Any, np.dtype[np.int64]]


def rows_of_file(
    path: Path, table: DataTable, id_column: str | None, *, subset: str, numbers: bool = False
) -> Positions:
    """Return the positions that a file names: by id where the data has a column of ids, and by row number otherwise.

    Args:
        path: Text with one entry a line, a JSON list, or a split file.
        table: The data.
        id_column: The column of the ids. None: the file holds row numbers.
        subset: The subset to take from a split file.
        numbers: The file holds row numbers, whatever the columns.

    Returns:
        The positions, sorted.

    Raises:
        UsageError: An entry is no row, or is there twice.
    """
    refuse_pickled(path, "text or JSON")
    if path.suffix == ".json":
        content = read_json(path)
        if isinstance(content, dict) and content.keys() >= {*SUBSETS}:
            if content.get("samples") != len(table):
                raise UsageError(
                    f"{path} was made for {content.get('samples')} samples, but {table.name} has {len(table)}."
                )
            entries = content.get(subset, [])
            if not isinstance(entries, list):
                raise UsageError(f"{path} must hold a list of row numbers as {subset!r}.")
            return rows_of_numbers(entries, table, str(path))
        if not isinstance(content, list):
            raise UsageError(f"{path} must hold a JSON list of ids or row numbers.")
        entries = [str(entry) for entry in content]
    else:
        entries = _lines(path, id_column)
    if not entries:
        raise UsageError(f"{path} is empty. List one id or row number a line.")
    if id_column is None or numbers:
        return rows_of_numbers(entries, table, str(path))
    return rows_of_ids(entries, table, id_column, str(path))


def _lines(path: Path, id_column: str | None) -> list[str]:
    """Return the lines of a text file without the empty ones, and without a header that names the column."""
    try:
        require_plain(path)
        lines = [line.strip().strip('"') for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read as text: {error}") from error
    lines = [line for line in lines if line]
    return lines[1:] if lines and lines[0] == id_column else lines


def rows_of_ids(ids: Sequence[str], table: DataTable, column: str, where: str) -> Positions:
    """Return the positions of all rows with these ids. A person may have several rows."""
    import pyarrow as pa
    from pyarrow import compute

    _require_once(ids, where)
    wanted = pa.array(ids, pa.string())
    rows, seen, start = [], np.zeros(len(ids), dtype=bool), 0
    for batch in table.batches([column]):
        found = compute.index_in(compute.cast(batch.column(0), pa.string()), value_set=wanted)
        here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        seen[found.drop_null().to_numpy()] = True
        rows.append(here + start)
        start += len(batch)
    missing = [one for one, was in zip(ids, seen, strict=True) if not was]
    if missing:
        raise UsageError(
            f"{len(missing)} of the {len(ids)} ids in {where} are not in the column {column!r} of {table.name} "
            f"(first: {', '.join(missing[:FIRST])}). Correct them, or name the column of the ids with --id."
        )
    return np.concatenate(rows).astype(np.int64)


def rows_of_numbers(entries: Sequence[Any], table: DataTable, where: str) -> Positions:
    """Return row numbers, which count from 0."""
    odd = [entry for entry in entries if not ROW.fullmatch(str(entry))]
    if odd:
        raise UsageError(
            f"{where} holds {str(odd[0])[:40]!r}, which is not a row number. If these are ids, name their column with "
            "--id."
        )
    numbers = [int(entry) for entry in entries]
    _require_once([str(number) for number in numbers], where)
    outside = [number for number in numbers if not 0 <= number < len(table)]
    if outside:
        raise UsageError(
            f"{len(outside)} of the {len(numbers)} row numbers in {where} are outside the {len(table)} rows of "
            f"{table.name} (first: {', '.join(map(str, outside[:FIRST]))}). Rows count from 0 to {len(table) - 1}."
        )
    return np.sort(np.asarray(numbers, dtype=np.int64))


def _require_once(entries: Sequence[str], where: str) -> None:
    known: set[str] = set()
    twice = [entry for entry in entries if entry in known or known.add(entry)]  # type: ignore[func-returns-value]
    if twice:
        raise UsageError(
            f"{where} lists {len(twice)} entries more than once (first: {', '.join(twice[:FIRST])}). List each once."
        )
