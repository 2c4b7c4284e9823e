"""The folder of a leaderboard: `unweave submit` writes it, one folder for each submission, with the numbers beside."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from unweave.errors import UsageError
from unweave.lab.leaderboard.evidence import require_notes
from unweave.lab.leaderboard.standing_rows import BoardRow, rows_of
from unweave.lab.report import read_results
from unweave.storage import OBJECT, TEXT, read_json, refuse_links, require_form, write_whole

ROWS = "rows.json"
FORM = {"methods?": [TEXT], "rows": [OBJECT]}
NUMBERS = ("results.parquet", "study.json", "provenance.json")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
PRIVATE = (  # what a command line may tell about one machine
    (re.compile(r"--data \S+"), "--data DATA"),
    (re.compile(r"(--(?:out|originals|tuned) )/(?:[^/ ]*/)*"), r"\1"),
)


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
        write_whole(target / "failed" / note.name, note.read_bytes())
    for file in NUMBERS:
        content = (study / file).read_bytes()
        if file == "study.json":  # a study keeps with its cells which data and model it is of
            content = (json.dumps({**json.loads(content), "notes": notes}, indent=2) + "\n").encode()
        if file == "provenance.json":
            text = content.decode()
            for pattern, instead in PRIVATE:
                text = pattern.sub(instead, text)
            content = text.encode()
        write_whole(target / file, content)


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
