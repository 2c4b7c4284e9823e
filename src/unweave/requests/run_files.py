"""What a request leaves in the folder of its run, for its owner only: the request as it was resolved, and the splits.

Later commands read them there, so that nobody has to repeat the request.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from unweave.api import Split, report_page
from unweave.engine import Callback
from unweave.errors import UsageError
from unweave.record import SPLIT, TEST_SPLIT
from unweave.requests.data_table import DataTable
from unweave.requests.examples import changed_predictions
from unweave.requests.request_fields import keys_of
from unweave.requests.roles import Roles
from unweave.requests.row_files import Positions, rows_of_file
from unweave.storage import MODEL, PAGE, WEIGHTS

if TYPE_CHECKING:
    from unweave.requests.request import Request
    from unweave.requests.resolving import Rows

RESOLVED = "request.yaml"
FOLDERS = ("out", "after", "key")  # keys that are always paths
FROM_RUN = (  # of the run before
    *("model", "weights", "train", "test", "input", "label", "prompt", "answer", "template", "id_column", "recipe"),
)


def resolved_text(request: Request, rows: Rows, *, test: bool) -> str:
    """Return a request as a file in the folder of its run: absolute paths, columns by name, rows by split file.

    Args:
        request: The request.
        rows: What it means.
        test: Whether the folder has a split of test data.

    Returns:
        YAML. Comments say what was asked.
    """
    found: dict[str, Any] = {}
    for key, field in keys_of(type(request)).items():
        value = getattr(request, field.name)
        default = {} if field.default is dataclasses.MISSING else field.default
        if value == default or value is None:
            continue
        if key in FOLDERS:
            value = Path(value)
        found[key] = _absolute(value) if field.metadata["path"] else _plain(value)
    located = rows.train
    found |= {**named_roles(located.roles), "forget": SPLIT, "adjacent": SPLIT}
    found |= {"test-split": TEST_SPLIT} if test else {}
    said = {"forget": request.forget, "adjacent": request.adjacent or f"{rows.rule} (found by unweave)"}
    lines = [
        f"# {key} was: {yaml.safe_dump(_plain(value), width=10**6).splitlines()[0]}" for key, value in said.items()
    ]
    head = ["# A request as it was resolved. It may identify people: only its owner can read this file.", *lines]
    return "\n".join(head) + f"\n{yaml.safe_dump(found, sort_keys=False, allow_unicode=True)}"


def named_roles(roles: Roles) -> dict[str, Any]:
    """Return the columns by the keys that name them in a request.

    >>> named_roles(Roles(("text",), "label", "id"))
    {'input': ['text'], 'label': 'label', 'id': 'id'}
    """
    ids = {"id": roles.id} if roles.id else {}
    if roles.template:
        return {"prompt": roles.inputs[0], "answer": roles.label, "template": roles.template, **ids}
    return {"input": list(roles.inputs), "label": roles.label, **ids}


def _absolute(value: Any) -> Any:
    """Return a path that is there as an absolute one. Others stay as they are, as Hub names and conditions do."""
    if isinstance(value, os.PathLike):
        return os.path.abspath(value)
    if isinstance(value, str) and (os.path.exists(value) or _is_pattern(value)):
        return os.path.abspath(value)
    return value


def _is_pattern(value: str) -> bool:
    import glob

    return glob.has_magic(value) and "\n" not in value and bool(glob.glob(value, recursive=True))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


class RequestFiles(Callback):
    """Write the request and its splits with the results of its run."""

    def __init__(self, request: Request, rows: Rows) -> None:
        self.request, self.located = request, rows

    def files(self, result: Any) -> Mapping[str, str]:
        """Return the request, the splits and, if samples may be shown, a page with changed predictions."""
        found = {RESOLVED: resolved_text(self.request, self.located, test=result.test is not None)}
        found[SPLIT] = result.split.to_json()
        if result.test is not None:
            found[TEST_SPLIT] = result.test.to_json()
        if self.request.show_samples:
            found[PAGE] = report_page(result, changed_predictions(result, self.located))
        return found


def request_file(folder: Path) -> Path:
    """Return the request of a run's folder, or raise a `UsageError` if the run had none."""
    if (folder / RESOLVED).is_file():
        return folder / RESOLVED
    raise UsageError(
        f"{folder} has no {RESOLVED}, so it is not the folder of a run of `unweave unlearn`. Give one that is."
    )


def weights_of_run(folder: Path) -> Path:
    """Return where the model of a run is: a folder that opens by itself, or weights for a model of the user's own."""
    found = folder / MODEL
    if (found / "config.json").is_file() or (found / "adapter_config.json").is_file():
        return found
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS
    raise UsageError(f"{folder} has no weights any more ({MODEL}/ or {WEIGHTS}), so there is no model to open.")


def earlier_split(folder: Path, split: Split) -> Split:
    """Return what the run in a folder and the runs before it made a model forget, over the samples of a split."""
    return Split.load(_split_file(folder), split.samples)


def gone_before(folder: Path | None, table: DataTable) -> Positions:
    """Return the rows that the run in a folder and the runs before it forgot; none without a folder."""
    if folder is None:
        return np.empty(0, dtype=np.int64)
    files = [rows_of_file(_split_file(folder), table, None, subset=subset) for subset in ("forget", "forgotten")]
    return np.union1d(*files)


def _split_file(folder: Path) -> Path:
    if not (folder / SPLIT).is_file():
        raise UsageError(f"{folder} has no {SPLIT}, which says what the run forgot. Give the folder of its run.")
    return folder / SPLIT
