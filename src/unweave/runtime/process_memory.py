"""The peak memory of this process, where the system tells (Linux)."""

from __future__ import annotations

from pathlib import Path

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset() -> None:
    """Let the peak start again from what is held now, where that is allowed."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def peak() -> int | None:
    """Return the peak since the last reset in bytes, or None where the system does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) * 1024 if found else None
