"""What numbers must say about their origin before they may stand on the leaderboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.report import Group, Results
from unweave.storage import read_json

COMMIT = re.compile(r"[0-9a-f]{40}")
PACKAGES = ("unweave", "torch")
FEWEST_SEEDS = 3
NOTES = ("data", "model", "initialisation")
RUN_AGAIN = "Run `unweave study` from a clean commit, and submit its folder."


def require_provenance(folder: Path) -> list[dict[str, Any]]:
    """Return every start of a study; raise an error if one does not say how its numbers came about.

    Every start needs the command, the commit of an unchanged tree, the date, the hardware and the versions.
    """
    file = folder / "provenance.json"
    if not file.is_file():
        raise UsageError(f"{folder} has no provenance.json, so nothing says where its numbers come from. {RUN_AGAIN}")
    content = read_json(file)
    runs = content.get("runs") if isinstance(content, dict) else None
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise UsageError(f"{file} names no start of a study. {RUN_AGAIN}")
    for number, run in enumerate(runs):
        if lack := _lack(run):
            raise UsageError(f"{file}, start {number}: {lack} {RUN_AGAIN}")
    return runs


def _lack(run: dict[str, Any]) -> str:
    """Return what a start does not say, or an empty text."""
    if not str(run.get("command", "")).startswith("unweave study "):
        return f"its command is {run.get('command')!r}, but must be one of `unweave study`."
    commit = run.get("commit")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        return f"its commit is {commit!r}, but must be the 40 digits of a commit without uncommitted changes."
    if not re.match(r"\d{4}-\d\d-\d\dT", str(run.get("date", ""))):
        return f"its date is {run.get('date')!r}, but must be one such as 2026-01-31T12:00:00+00:00."
    for part, names in (("hardware", ("device", "kind")), ("versions", PACKAGES)):
        said = run.get(part)
        missing = [name for name in names if not (isinstance(said, dict) and said.get(name))]
        if missing:
            return f"its {part} do not name {' and '.join(missing)}."
    return ""


def require_complete(results: Results) -> None:
    """Raise an error for a trial, and for a study without its original."""
    where = results.folder
    if results.options.get("small"):
        raise UsageError(f"{where} is a trial with --small: its numbers mean nothing. Run the study without it.")
    if results.reference("original") is None:
        raise UsageError(f"{where} has no original to compare with. Add it: --methods original,…")


def require_notes(results: Results) -> None:
    """Raise an error for a study that does not say which data and model it is of.

    Studies of ours that are older than these notes name them by benchmark and commit only; a submission must say it.
    """
    if missing := [name for name in NOTES if not results.notes.get(name)]:
        raise UsageError(f"{results.folder} does not say which {' and '.join(missing)} it is of. {RUN_AGAIN}")


def require_seeds(results: Results, group: Group) -> None:
    """Raise an error if a method was run with too few seeds, or with one that has no original. A failure is a run."""
    seeds = results.seeds_of(group)
    if (tried := len(seeds) + len(results.failures_of(group))) < FEWEST_SEEDS:
        raise UsageError(
            f"{results.folder}: {results.label(group)} has {tried} seeds, but needs {FEWEST_SEEDS}. Run the study with "
            f"--seeds {FEWEST_SEEDS}."
        )
    original = results.reference("original")
    if original is not None and (unpaired := sorted(set(seeds) - set(results.seeds_of(original)))):
        raise UsageError(f"{results.folder}: seed {unpaired[0]} of {results.label(group)} has no original.")
