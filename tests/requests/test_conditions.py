"""Conditions in SQL: one expression over the columns, with one meaning."""

from __future__ import annotations

import inspect
import sys

import pytest

from unweave import UsageError
from unweave.requests.conditions import rows_where
from unweave.requests.data_table import DataTable

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("duckdb")


def table(**columns):
    return DataTable("people", dataset.dataset(pa.table(columns)))


def test_a_name_that_fits_two_columns_is_refused():
    """SQL does not tell upper and lower case apart: `id = 1` read the other column, and forgot other people."""
    people = table(id=[1, 2], ID=[3, 1], age=[4, 5])
    for condition in ("id = 1", "ID = 1", "Id = 1"):
        with pytest.raises(UsageError, match="could be 'id' or 'ID': in SQL upper and lower case are alike"):
            rows_where(condition, people)
    assert rows_where("AGE = 5", people).tolist() == [1]


@pytest.mark.parametrize("condition", ["unweave_row = 1", "age = 5", "TRUE"])
def test_a_column_with_the_name_of_our_own_is_refused(condition):
    """Its values were taken for the numbers of rows."""
    with pytest.raises(UsageError, match="has a column 'unweave_row', a name that unweave needs"):
        rows_where(condition, table(unweave_row=[1, 2], age=[4, 5]))


@pytest.mark.parametrize("condition", ["(SELECT 1)", "1 = 1; DROP TABLE data", "TRUE\n)\nUNION SELECT 1 --", "(" * 900])
def test_more_than_an_expression_is_refused(condition):
    with pytest.raises(UsageError, match="The condition"):
        rows_where(condition, table(age=[4, 5]))


@pytest.mark.parametrize("count", [100, 300, 900, 3000])
def test_a_condition_that_is_nested_too_deeply_is_refused(count):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 250)  # as deep within a program
    try:
        with pytest.raises(UsageError, match=r"nested too deeply|cannot be read as SQL|fails"):
            rows_where(f"{'NOT ' * count}(age = 'x')", table(age=[1]))
    finally:
        sys.setrecursionlimit(limit)


def test_files_of_the_machine_cannot_be_read():
    with pytest.raises(UsageError, match=r"The condition .* fails"):
        rows_where("read_text('/etc/passwd') = ''", table(age=[4, 5]))
