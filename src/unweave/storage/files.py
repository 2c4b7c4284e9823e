"""Files that are written whole or not at all, read without running code, and never outside the given folder.

All reading and writing goes through here, because what a run writes is evidence and what it reads may come from a
stranger.
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
    """Write a file whole or not at all, even if the machine stops. If the disk is full, the old file stays.

    Only its owner can read a ``private`` file. Call `sync_folder` afterwards to make sure that the file's name is on
    disk too.
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
    """Create a file that only its owner can read from the start, even while it is empty."""
    Path(path).unlink(missing_ok=True)
    return os.open(path, flags | os.O_EXCL, 0o600)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, if the system supports it."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def canonical(content: Any) -> bytes:
    """Return JSON content in the form that is hashed and signed: sorted keys, no spaces, UTF-8.

    >>> canonical({"b": 1.5, "a": [True]})
    b'{"a":[true],"b":1.5}'
    """
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("it is nested too deeply.") from None
    return text.encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal, without reading all of it into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, *, limit: int = JSON_BYTES) -> Any:
    """Read JSON. Raise a `UsageError` if it is not a regular file, is larger than the limit, or is not valid JSON."""
    refuse_pickled(path, "JSON")
    try:
        size = require_plain(path)
        if size > limit:
            raise UsageError(f"{path} cannot be read: it has {size} bytes, more than the limit of {limit}.")
        return json.loads(path.read_bytes().decode(), parse_constant=_no_constant)
    except RecursionError:
        raise UsageError(f"{path} cannot be read: its JSON is nested too deeply.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def require_plain(path: Path) -> int:
    """Return a file's size. Reject folders, pipes and devices: reading them might never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} cannot be read: it is not a regular file.")
    return found.st_size


def refuse_pickled(path: Path, wanted: str = "safetensors") -> None:
    """Reject a file that would have to be unpickled, and explain how to convert it."""
    if path.suffix.lower() in PICKLED:
        how = (
            f"convert them with `unweave convert {path}`"
            if wanted == "safetensors"
            else f"save the content as {wanted}"
        )
        kind = "Pickled weights" if wanted == "safetensors" else "Pickled files"
        raise UsageError(
            f"{path.name} is not a {wanted} file. {kind} can run code when opened, so they are rejected: {how}."
        )


def inside(folder: Path, name: Any) -> Path:
    """Return the path of a name that was read from a file. Reject a name that leads out of the folder.

    >>> inside(Path("runs"), "../secrets")
    Traceback (most recent call last):
    unweave.errors.UsageError: A file in runs names '../secrets', which is outside that folder.
    """
    if isinstance(name, str) and name and "\0" not in name:
        path, home = folder / name, folder.resolve()
        # Absolute names and ".." are rejected as written. A link is resolved, and must lead into the folder.
        plain = not Path(name).is_absolute() and ".." not in Path(name).parts and "\\" not in name
        if plain and path.resolve().is_relative_to(home):
            return path
    raise UsageError(f"A file in {folder} names {name!r}, which is outside that folder.")
