"""A study's numbers as one table: a row for every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unweave.lab.packages import require_package
from unweave.storage import write_whole

COLUMNS = ("benchmark", "variant", "method", "profile", "seed", "split", "subset", "metric", "value", "low", "high")


def write_table(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows as Parquet. A reader always finds a complete table."""
    require_package("pyarrow", "A study's table")
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"seed": pa.int64(), "value": pa.float64(), "low": pa.float64(), "high": pa.float64()}
    schema = pa.schema([(column, kinds.get(column, pa.string())) for column in COLUMNS])
    content = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(list(rows), schema=schema), content)
    write_whole(path, content.getvalue().to_pybytes())


def flatten(scores: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a run's scores as rows with split, subset, metric, value, low and high.

    >>> row = {"split": "train", "subset": "forget", "metric": "accuracy", "value": 0.5, "better": "lower"}
    >>> next(flatten({"metrics": [row]}))
    {'split': 'train', 'subset': 'forget', 'metric': 'accuracy', 'value': 0.5, 'low': None, 'high': None}
    """
    for row in scores.get("metrics", []):
        if row.get("value") is not None:
            yield _row(row["split"], row["subset"], row["metric"], row["value"], row.get("low"), row.get("high"))
    for metric, value in scores.get("cost", {}).items():
        if value is not None:
            yield _row("", "", metric, value)


def _row(
    split: str, subset: str, metric: str, value: float, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    return {"split": split, "subset": subset, "metric": metric, "value": float(value), "low": low, "high": high}
