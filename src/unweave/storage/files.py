"""Files: written whole or not at all, read only where they cannot run code, never outside the folder given.

What a run writes is evidence and what it reads may come from a stranger, so both go through here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from unweave.errors import UsageError

JSON_BYTES = 256 * 2**20
PICKLED = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops.

    A ``private`` file can be read by its owner only. A disk that is full leaves what was there before. The name reaches
    the disk for certain once `sync_folder` has been called.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb", opener=_private if private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    """Open a new file that was never readable by anybody else, not even while it was empty."""
    Path(path).unlink(missing_ok=True)
    return os.open(path, flags | os.O_EXCL, 0o600)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk, where the system knows how."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def canonical(content: Any) -> bytes:
    """Return the one form of some JSON that is hashed and signed: sorted keys, no spaces, UTF-8.

    >>> canonical({"b": 1.5, "a": [True]})
    b'{"a":[true],"b":1.5}'
    """
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("it is nested too deeply.") from None
    return text.encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 digest of a file without holding all of it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, *, limit: int = JSON_BYTES) -> Any:
    """Read JSON. What is no plain file, is larger than the limit, or is no JSON is a `UsageError`."""
    refuse_pickled(path, "JSON")
    try:
        size = require_plain(path)
        if size > limit:
            raise UsageError(f"{path} cannot be read: it has {size} bytes, and {limit} are the most that is read.")
        return json.loads(path.read_bytes().decode(), parse_constant=_no_constant)
    except RecursionError:
        raise UsageError(f"{path} cannot be read: its JSON is nested too deeply.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def require_plain(path: Path) -> int:
    """Return a file's size; refuse a folder, a pipe or a device, which could be read for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} cannot be read: it is no plain file.")
    return found.st_size


def refuse_pickled(path: Path, wanted: str = "safetensors") -> None:
    """Refuse a file that is opened by unpickling, and say how to convert it."""
    if path.suffix.lower() in PICKLED:
        how = (
            "convert them with safetensors.torch.save_file(state_dict, path)"
            if wanted == "safetensors"
            else f"save the content as {wanted}"
        )
        kind = "Pickled weights" if wanted == "safetensors" else "Pickled files"
        raise UsageError(
            f"{path.name} is no {wanted} file. {kind} can run code when opened, so they are refused: {how}."
        )


def inside(folder: Path, name: Any) -> Path:
    """Return the path of a name that a file gave, or refuse it where it leads out of the folder.

    >>> inside(Path("runs"), "../secrets")
    Traceback (most recent call last):
    unweave.errors.UsageError: A file in runs names '../secrets', which is outside that folder.
    """
    if isinstance(name, str) and name and "\0" not in name:
        path, home = folder / name, folder.resolve()
        # Absolute names and ".." are refused as written; a link is followed to where it leads.
        plain = not Path(name).is_absolute() and ".." not in Path(name).parts and "\\" not in name
        if plain and path.resolve().is_relative_to(home):
            return path
    raise UsageError(f"A file in {folder} names {name!r}, which is outside that folder.")


# Tensors
