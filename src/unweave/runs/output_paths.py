"""Where a run lies: the folder asked for, the one it works in, and the original that is kept beside it meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unweave.engine import CheckpointFolder
from unweave.errors import UsageError
from unweave.storage import SCORES

UNFINISHED = ".unfinished"  # suffix of the folder of an unfinished run
ORIGINAL = ".original.safetensors"  # suffix of the original that a command trained for a run
LONGEST = 255 - len(ORIGINAL + ".partial")  # bytes of a folder's name


def absolute(target: Path) -> Path:
    """Return the path of an output folder, without links.

    >>> absolute(Path("/"))
    Traceback (most recent call last):
    unweave.errors.UsageError: / is the root of a file system and cannot be an output folder. Choose another --out.
    """
    try:
        found = target.resolve()
    except (RuntimeError, OSError, ValueError) as error:  # such as links that lead to each other
        raise UsageError(f"{target} cannot be an output folder: {error}. Choose another --out.") from error
    if not found.name:
        raise UsageError(f"{target} is the root of a file system and cannot be an output folder. Choose another --out.")
    if len(os.fsencode(found.name)) > LONGEST:
        raise UsageError(f"The name of the output folder is too long: {found.name[:40]}…. Choose a shorter --out.")
    return found


def unfinished(target: Path) -> Path:
    """Return the folder that a run works in until it is finished."""
    target = absolute(target)
    return target.with_name(target.name + UNFINISHED)


def kept_original(target: Path) -> Path:
    """Return where a command keeps the original that it trained until the run that starts from it is finished.

    Retraining may differ by rounding, so the run could not resume.
    """
    target = absolute(target)
    return target.with_name(target.name + ORIGINAL)


def refuse_existing(target: Path) -> None:
    """Raise a `UsageError` if the target exists and is not empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists and is not empty. Choose another --out, or remove it.")


def tidy(target: Path, *, original: bool = False) -> None:
    """Remove what a finished run no longer needs: its process may have been killed before it could do so.

    Args:
        target: The folder of the run.
        original: Whether a command kept an original beside it.
    """
    if not (target / SCORES).exists() or unfinished(target).exists():
        return
    with suppress(OSError):
        CheckpointFolder(target / "checkpoints").prune()
        if original:
            drop_original(target)


def drop_original(target: Path) -> None:
    """Remove the original that a command kept for a run, which still knows the data, once the run needs it no more."""
    if unfinished(target).exists():
        return
    kept = kept_original(target)
    for file in (kept, kept.with_name(f"{kept.name}.partial")):
        file.unlink(missing_ok=True)
