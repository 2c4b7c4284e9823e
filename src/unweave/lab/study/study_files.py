"""Read the files of a study. The folder may come from a stranger, so every file is checked before it is used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from unweave.errors import RunError, UsageError
from unweave.storage import COUNT, NUMBER, OBJECT, TEXT, read_json, read_json_lines, require_form

SCHEMA = 1
LABELS = {"variant": TEXT, "method": TEXT, "profile": TEXT, "seed": COUNT}
ABOUT = {
    "benchmark": TEXT,
    "options?": OBJECT,
    "notes?": {"*": TEXT},
    "presets?": {"*": {"summary": TEXT, "about": [TEXT], "shows": [TEXT], "rows": [[TEXT]]}},
}
LOSSES = {
    "samples?": COUNT,
    "accuracy?": NUMBER,
    "loss?": NUMBER,
    "loss_histogram?": {"edges": [NUMBER], "counts": [NUMBER]},
}
VALUE = {"split": TEXT, "subset": TEXT, "metric": TEXT, "better": TEXT, "note?": TEXT}
VALUE |= dict.fromkeys(("value?", "low?", "high?", "reference?", "before?"), NUMBER)
SCORES = {
    "metrics?": [VALUE],
    "cost?": {"*?": NUMBER},
    "stages?": {"*": LOSSES},
    "train?": {"*": LOSSES},
    "test?": {"*": LOSSES},
}
COMPARED = {**SCORES, "references": [TEXT]}
CONFIGURATION = {"settings?": OBJECT, "notes?": {"*": TEXT}, "unweave?": TEXT, "torch?": TEXT, "cell": LABELS}
FAILURE = {**LABELS, "error": TEXT}
SAYINGS = {"*": {"questions": [TEXT], "answers": [TEXT], "written": [TEXT]}}
RUNS = {"runs": [{"command?": TEXT, "versions?": {"*": TEXT}, "workers?": COUNT}]}
PLAIN_NAME = re.compile(r"[\w=,.+-]{1,100}")  # what may become a part of a file's name


def read_about(folder: Path) -> dict[str, Any]:
    """Return the content of study.json."""
    path = folder / "study.json"
    if not path.exists():
        raise UsageError(f"{folder} holds no study. Give a folder of `unweave study`.")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != "unweave-study":
        raise UsageError(f"{folder} holds no study. Give a folder of `unweave study`.")
    if content.get("schema") != SCHEMA:
        raise UsageError(f"{folder} has schema {content.get('schema')!r}; this unweave reads {SCHEMA}. Update unweave.")
    require_form(content, ABOUT, str(path))
    for name, preset in (content.get("presets") or {}).items():
        if not PLAIN_NAME.fullmatch(name):
            raise UsageError(f"{path} names a study {name!r}. Names have only letters, digits and the signs = , . + -")
        if any(len(row) != 3 for row in preset["rows"]):
            raise UsageError(f"{path}: a row of the study {name!r} must name a method, a profile and a variant.")
    return without_nulls(content, ABOUT)


def of_cell(file: Path, form: Any) -> Any:
    """Return the content of a file of a finished cell."""
    try:
        content = read_json(file)
        require_form(content, form, str(file))
        _require_histograms(content, str(file))
    except UsageError as error:
        raise RunError(f"{error} Remove {file.parent}; the study then runs that cell again.") from error
    return without_nulls(content, form)


def without_nulls(content: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    """Return the content without optional entries that are null, which say the same as absent ones.

    >>> without_nulls({"benchmark": "digits", "options": None}, ABOUT)
    {'benchmark': 'digits'}
    """
    return {name: value for name, value in content.items() if value is not None or f"{name}?" not in form}


def _require_histograms(content: dict[str, Any], where: str) -> None:
    """Raise if a histogram does not have one edge more than it has counts, in rising order."""
    entries = [entry for part in ("train", "test") for entry in (content.get(part) or {}).values()]
    for entry in [*entries, *(content.get("stages") or {}).values()]:
        if histogram := entry.get("loss_histogram"):
            edges, counts = histogram["edges"], histogram["counts"]
            if len(edges) != len(counts) + 1 or sorted(edges) != edges or min(counts, default=0) < 0:
                raise UsageError(
                    f"{where} has a wrong loss_histogram: its edges must rise, and be one more than its counts."
                )


def read_history(file: Path) -> list[dict[str, Any]]:
    """Return what a run logged, one entry a step."""
    rows = read_json_lines(file) if file.exists() else []
    for number, row in enumerate(rows, start=1):
        require_form(row, {"phase": TEXT, "step": COUNT}, f"{file}, line {number}")
        for name, value in row.items():
            if name != "phase":
                require_form(value, NUMBER, f"{file}, line {number}, {name}")
    return rows


def read_said(file: Path) -> dict[str, Any]:
    """Return what a language model writes, by subset."""
    content: dict[str, Any] = of_cell(file, SAYINGS)
    for subset, texts in content.items():
        if not len(texts["questions"]) == len(texts["answers"]) == len(texts["written"]):
            raise RunError(
                f"{file}: {subset} data has not as many answers as questions. Remove {file.parent}; the study then "
                "runs that cell again."
            )
    return content


def read_failure(file: Path) -> dict[str, Any]:
    """Return the note of a cell that failed."""
    content: dict[str, Any] = read_json(file)
    require_form(content, FAILURE, str(file))
    return content


def read_runs(file: Path) -> list[dict[str, Any]]:
    """Return the starts in a provenance.json; none if there is no such file."""
    if not file.exists():
        return []
    content = read_json(file)
    require_form(content, RUNS, str(file))
    return [without_nulls(run, RUNS["runs"][0]) for run in content["runs"]]


def read_times(file: Path) -> list[tuple[str, float]]:
    """Return the recorded names and seconds. A line that a killed process left incomplete is skipped."""
    found = []
    for row in read_json_lines(file, strict=False) if file.exists() else []:
        if isinstance(row, dict) and isinstance(row.get("name"), str) and _is_time(row.get("seconds")):
            found.append((row["name"], float(row["seconds"])))
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
