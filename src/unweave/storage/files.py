"""Files that are written whole or not at all, read without running code, and never outside the given folder.

All reading and writing goes through here, because what a run writes is evidence and what it reads may come from a
stranger.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from unweave.errors import UsageError

NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
PICKLED = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file whole or not at all, even if the machine stops. If the disk is full, the old file stays.

    The temporary file beside it is always a new one, so a link of that name leads nowhere. Only its owner can read a
    ``private`` file. Call `sync_folder` afterwards to make sure that the file's name is on disk too.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is a folder, a pipe or a device, which no file replaces. Choose another name.")
    partial = path.with_name(path.name + ".partial")
    mode = 0o600 if private else 0o666
    try:
        partial.unlink(missing_ok=True)  # of a process that was killed; of a link, nothing but the link
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags | NO_LINKS, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter. One that is there keeps its mode, and new parents have the usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def append_line(path: Path, line: str) -> None:
    """Append a short line in one piece, even if other processes append too. Reject links, pipes and devices."""
    with open_own(path, "ab") as file:
        file.write(line.encode() + b"\n")


def open_own(path: Path, mode: Literal["ab", "wb"]) -> FileIO:
    """Open a file for writing, but not through a link, and never a pipe or a device."""
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, which may lead out of the folder. Remove it.")
    try:
        # Truncated only when it is known to be a file.
        flags = NO_LINKS | getattr(os, "O_NONBLOCK", 0)
        file = FileIO(path, "ab", opener=lambda name, asked: os.open(name, asked | flags, 0o666))
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise UsageError(f"{path} cannot be written: it is not a regular file. Remove it.") from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UsageError(f"{path} cannot be written: it is not a regular file. Remove it.")
    if mode == "wb":
        file.truncate(0)
    return file


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, if the system supports it."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal, without reading all of it into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def refuse_links(folder: Path) -> None:
    """Raise a `UsageError` if a folder holds a link, a pipe or a device, however deep.

    Who writes or removes files in a folder from somebody else calls this first: then nothing outside is touched, and
    nothing is waited for.
    """
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):  # gone since, as files of other processes are
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            refuse_links(Path(entry))
        elif entry.is_symlink():
            raise UsageError(
                f"{entry.path} is a link. What is written or removed there could lie outside the folder. Replace the "
                "link by what it leads to, or remove it."
            )
        elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry):
            raise UsageError(f"{entry.path} is not a regular file but a pipe, a socket or a device. Remove it.")
