"""The folder of a leaderboard: `unweave submit` writes it, one folder for each submission, with the numbers beside."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.leaderboard.evidence import require_notes
from unweave.lab.leaderboard.standing_rows import BoardRow, rows_of
from unweave.lab.report import read_results
from unweave.storage import OBJECT, TEXT, read_json, refuse_links, require_form, write_whole

ROWS, TABLE = "rows.json", "results.parquet"
FORM = {"methods?": [TEXT], "rows": [OBJECT]}
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
PRIVATE = re.compile(r"--(data|cluster)[= ].*")  # options whose whole value tells about one machine
FILES = re.compile(r"(?<![\w.])~?/\S*/")  # the folders of a file in a sentence
FOLDERS = re.compile(r"(^|[\s=,:'\"(])(?:/|~/|[A-Za-z]:\\).*?([^/\\]*)$")  # an absolute path up to the end of the text


def submit(folders: Sequence[Path], board: Path, *, name: str, methods: Sequence[str] | None = None) -> list[BoardRow]:
    """Check some studies of one benchmark, copy their numbers into the board's folder, and write their rows.

    Args:
        folders: Folders of `unweave study`, such as one for each class to forget.
        board: The folder of the board. It may not exist yet.
        name: The name of the submission, and of its folder. An existing one is not replaced.
        methods: The methods to submit. The default is all.

    Returns:
        The rows, which are also in ``board/name/rows.json``.

    Raises:
        UsageError: If a study lacks provenance, its original or seeds, or if the name is taken.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"The name {name!r} must have small letters, digits and hyphens only, 61 at most.")
    target = board / name
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists already. Choose another --name; a submission is not replaced.")
    studies = [read_results(folder) for folder in folders]
    for results in studies:
        require_notes(results)
        if not (results.folder / TABLE).is_file():
            raise UsageError(f"{results.folder} has no {TABLE}. Run `unweave study` to its end first.")
    rows = rows_of(studies, methods=methods)
    if not rows:
        raise UsageError("These studies have no rows of such a method with a measured value.")
    for number, results in enumerate(studies):
        copy_numbers(results.folder, target / f"{number:02d}", notes=results.notes)
    content = {"methods": None if methods is None else list(methods), "rows": [row.to_dict() for row in rows]}
    write_whole(target / ROWS, (json.dumps(content, indent=2) + "\n").encode())
    return rows


def copy_numbers(study: Path, target: Path, *, notes: dict[str, str]) -> None:
    """Copy the table, the description and the provenance of a study, without the folders of one machine."""
    target.mkdir(parents=True)
    for note in sorted((study / "failed").glob("*.json")):
        (target / "failed").mkdir(exist_ok=True)
        failed = read_json(note)
        _write(target / "failed" / note.name, {**failed, "error": FILES.sub("", str(failed.get("error", "")))})
    about = read_json(study / "study.json")
    _write(target / "study.json", {**about, "notes": notes})  # a study keeps them with its cells
    started = read_json(study / "provenance.json")
    runs = [{**run, "command": without_places(str(run["command"]))} for run in started["runs"]]
    _write(target / "provenance.json", {**started, "runs": runs})
    write_whole(target / TABLE, (study / TABLE).read_bytes())


def _write(file: Path, content: Any) -> None:
    write_whole(file, (json.dumps(content, indent=2) + "\n").encode())


def without_places(command: str) -> str:
    """Return a command line without the folders and addresses of one machine. Folders may have spaces in their names.

    >>> without_places("unweave study tiny --data=/home/ann smith/data --out /home/ann smith/study --seeds 3")
    'unweave study tiny --data DATA --out study --seeds 3'
    """
    parts = re.split(r" (?=--)", command)
    shown = [PRIVATE.sub(lambda found: f"--{found[1]} {found[1].upper()}", part) for part in parts]
    return " ".join(FOLDERS.sub(r"\1\2", part) for part in shown)


def read_board(board: Path) -> list[BoardRow]:
    """Return the rows of every submission, computed from the numbers beside them.

    Raises:
        UsageError: If a submission cannot be read, lacks provenance, or has rows that are not those of its numbers.
    """
    rows = []
    for file in sorted(board.glob(f"*/{ROWS}")):
        refuse_links(file.parent)
        content = read_json(file)
        require_form(content, FORM, str(file))
        studies = [read_results(folder) for folder in sorted(path.parent for path in file.parent.glob("*/study.json"))]
        if not studies:
            raise UsageError(f"{file.parent} has no numbers beside its rows. Submit its studies again.")
        found = rows_of(studies, methods=content.get("methods"))
        if json.loads(json.dumps([row.to_dict() for row in found])) != content.get("rows"):
            raise UsageError(f"{file} differs from the numbers beside it. Submit its studies again.")
        rows += found
    return rows
