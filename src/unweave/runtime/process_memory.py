"""The peak memory of this process, on systems that report it (Linux)."""

from __future__ import annotations

from pathlib import Path

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset() -> None:
    """Reset the peak to the memory in use now, if the system allows it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def peak() -> int | None:
    """Return the peak since the last reset in bytes, or None if the system does not report it."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) * 1024 if found else None
