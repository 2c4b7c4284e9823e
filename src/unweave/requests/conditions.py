"""A condition in SQL over the columns, run by DuckDB: one expression that can only read the rows it is given.

>>> import pyarrow as pa
>>> from pyarrow import dataset
>>> from unweave.requests.data_table import DataTable
>>> table = DataTable("people", dataset.dataset(pa.table({"person": [17, 18, 17], "age": [3, 40, 50]})))
>>> rows_where("person = 17 AND age > 10", table).tolist()
[2]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from unweave.errors import UsageError, short
from unweave.requests.data_table import DataTable
from unweave.requests.packages_needed import need
from unweave.requests.row_files import Positions

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "unweave_row"
LOCKS = (
    "SET enable_external_access = false",
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET lock_configuration = true",
)


def rows_where(condition: str, table: DataTable) -> Positions:
    """Return the positions of the rows that meet a condition.

    Args:
        condition: What stands after WHERE, without a query of its own: ``person_id = 17``.
        table: The data. Only the columns that the condition names are read.

    Returns:
        The positions, sorted.

    Raises:
        UsageError: The condition cannot be read, is more than one expression, or names an unknown column.
    """
    duckdb = need("duckdb", "A condition in SQL")
    connection = duckdb.connect(":memory:", config={"threads": 1})
    try:
        for lock in LOCKS:
            connection.execute(lock)
        columns = _columns(connection, condition, table)
        reader = _numbered(table, columns)
        connection.register("data", reader)
        found = connection.execute(_query(ROW, condition)).fetchnumpy()[ROW]
    except duckdb.Error as error:
        raise UsageError(f"The condition {condition!r} fails: {_plain(error)}") from error
    except RecursionError as error:
        raise UsageError(f"The condition {short(condition)} is nested too deeply. Simplify it.") from error
    finally:
        connection.close()
    return np.sort(np.asarray(found, dtype=np.int64))


def _query(wanted: str, condition: str) -> str:
    return f"SELECT {wanted} FROM data WHERE (\n{condition}\n)"


def _columns(connection: Any, condition: str, table: DataTable) -> list[str]:
    """Return the columns that a condition names, after a check that it is one expression without a query."""
    if own := next((column for column in table.columns if column.lower() == ROW), None):
        raise UsageError(f"{table.name} has a column {own!r}, a name that unweave needs for conditions. Rename it.")
    tree = _tree(connection, condition)
    form, plain = tree["node"], _tree(connection, "TRUE")["node"]
    where = form.pop("where_clause", None)
    plain.pop("where_clause")
    parts = list(_parts(where))
    if form != plain or any(part.get("class") == "SUBQUERY" for part in parts):
        raise UsageError(
            f"The condition {condition!r} must be one expression over the columns, as after WHERE, without a query or "
            "a command."
        )
    named = [part["column_names"][-1] for part in parts if part.get("class") == "COLUMN_REF"]
    known = {name.lower(): name for name in table.columns}
    for name in named:
        table.require(known.get(name.lower(), name))
        _require_one(name, table, condition)
    return sorted({known[name.lower()] for name in named})


def _require_one(name: str, table: DataTable, condition: str) -> None:
    """Refuse a name that fits two columns: SQL does not tell upper and lower case apart, and would take either."""
    alike = [column for column in table.columns if column.lower() == name.lower()]
    if len(alike) > 1:
        raise UsageError(
            f"The condition {condition!r} names {name!r}, which could be {' or '.join(map(repr, alike))}: in SQL upper "
            "and lower case are alike. Rename a column."
        )


def _tree(connection: Any, condition: str) -> Any:
    """Return how DuckDB reads the condition, without running it."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [_query("1", condition)]).fetchall()
    tree = json.loads(text)
    if tree["error"] or len(tree["statements"]) != 1:
        reason = tree.get("error_message") or "it is several statements."
        if "Only SELECT statements" in reason:
            reason = "it is more than one expression, and may only read."
        raise UsageError(f"The condition {condition!r} cannot be read as SQL: {reason.splitlines()[0]}")
    return _without_places(tree["statements"][0])


def _without_places(tree: Any) -> Any:
    """Take out where in the text each part stands."""
    if isinstance(tree, dict):
        return {name: _without_places(value) for name, value in tree.items() if name != "query_location"}
    return [_without_places(value) for value in tree] if isinstance(tree, list) else tree


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _parts(value)


def _numbered(table: DataTable, columns: list[str]) -> pa.RecordBatchReader:
    """Return the columns with the number of each row, one batch after the other."""
    import pyarrow as pa

    read = columns or table.columns[:1]
    fields = [table.schema.field(name) for name in read]
    schema = pa.schema([*fields, pa.field(ROW, pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in table.batches(read):
            numbers = pa.array(np.arange(start, start + len(batch)))
            start += len(batch)
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
