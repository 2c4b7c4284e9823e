"""What unweave raises when something is wrong, sorted by who can mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class UsageError(ValueError):
    """The call was wrong: the message says what was found and what to do. Exit code 2."""


class RunError(RuntimeError):
    """The call was right but the work failed, for instance because it diverged. Exit code 1."""


class RunWarning(UserWarning):
    """The work goes on, but its user should know."""


class Stopped(RunError):  # noqa: N818
    """The work was left on request, at a checkpoint from which it goes on."""


def require_type(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Refuse an argument of another kind.

    >>> require_type("seed", "one", int, "a whole number")
    Traceback (most recent call last):
    unweave.errors.UsageError: seed must be a whole number, not str.
    """
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {words}, not {type(value).__name__}.")


def require_seed(seed: Any) -> None:
    """Refuse a seed that not every random generator takes."""
    require_type("seed", seed, int, "a whole number")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}, but must be from 0 to {2**32 - 1}.")


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist, suggesting the nearest that does.

    >>> unknown("method", "two-stge", ["two-stage", "ft"])
    UsageError("There is no method 'two-stge'. Did you mean 'two-stage'? Known: ft, two-stage.")
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"There is no {kind} {name!r}.{hint} Known: {', '.join(names)}.")
