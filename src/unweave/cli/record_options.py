"""Options of the commands of `unweave record`, and how their records are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="Record, or folder of a run.")]
Records = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Records or folders of runs, oldest first.")]
ProofsFile = Annotated[
    Path | None, typer.Option("--proofs", help="Private file of the request's proofs. Default: beside the record.")
]


def file_of(path: Path) -> Path:
    """Return the record of a run's folder, or the record itself. A folder is tidied if its process was killed."""
    from unweave.record import NAME

    if not path.is_dir():
        return path
    from unweave.runs import tidy

    tidy(path, original=True)
    return path / NAME


def read_any(path: Path) -> dict[str, Any]:
    """Read a record without checking its hash. `verify` and `show` report a changed one themselves."""
    from unweave.record import require_record
    from unweave.storage import read_json

    return require_record(read_json(file_of(path)), str(file_of(path)))
