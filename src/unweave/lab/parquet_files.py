"""Read a Parquet file that may be damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.storage import require_plain


def read_parquet(path: Path, advice: str) -> Any:
    """Return the table in a file; raise a `UsageError` with this advice if it cannot be read.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "results.parquet")
    >>> file.write_bytes(b"no table")
    8
    >>> read_parquet(file, "Run `unweave study` again.")
    Traceback (most recent call last):
    unweave.errors.UsageError: .../results.parquet cannot be read as a table: ... Run `unweave study` again.
    """
    require_package("pyarrow", f"Reading {path.name}")
    import pyarrow
    from pyarrow import parquet

    try:
        require_plain(path)
        table = parquet.read_table(path)
        table.validate(full=True)  # text that is no UTF-8 would raise later, wherever it is used
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path} cannot be read as a table: {reason} {advice}") from error
    return table
