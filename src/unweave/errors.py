"""Errors and warnings, sorted by who can fix the cause; checks of arguments; and text made safe to print."""

from __future__ import annotations

import difflib
import operator
import unicodedata
from collections.abc import Iterable
from typing import Any, SupportsIndex


class UsageError(ValueError):
    """The call was wrong. The message says what was found and what to do. The command line exits with code 2.

    >>> import torch
    >>> import unweave as uw
    >>> try:
    ...     uw.losses.squared_wasserstein(torch.zeros(0), torch.ones(3))
    ... except uw.UsageError as error:
    ...     print(error)
    current must be a non-empty vector of losses, but its shape is (0,).
    """


class RunError(RuntimeError):
    """The call was right, but the work failed, for example because it diverged. The command line exits with code 1.

    >>> import unweave as uw
    >>> issubclass(uw.CollapseError, uw.RunError)  # raised by the guard when a model loses what it should keep
    True
    """


class RunWarning(UserWarning):
    """The work continues, but its result may not be what the user expects.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", RunWarning)  # let every such warning end the program
    ...     warnings.warn("The model could not be compiled.", RunWarning)
    Traceback (most recent call last):
    unweave.errors.RunWarning: The model could not be compiled.
    """


class Stopped(RunError):  # noqa: N818
    """The run stopped on request after it had saved a checkpoint. It can be resumed.

    >>> import unweave as uw
    >>> issubclass(uw.Stopped, uw.RunError)
    True
    """


def require_type(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Raise a `UsageError` if an argument has the wrong type.

    >>> require_type("seed", "one", int, "a whole number")
    Traceback (most recent call last):
    unweave.errors.UsageError: seed must be a whole number, not str.
    """
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {words}, not {type(value).__name__}.")


def require_seed(seed: Any) -> int:
    """Return a seed as a number that every random generator takes, or raise a `UsageError`."""
    require_type("seed", seed, SupportsIndex, "a whole number")
    found = operator.index(seed)
    if not 0 <= found < 2**32:
        raise UsageError(f"seed is {found}, but must be from 0 to {2**32 - 1}.")
    return found


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name. It suggests the most similar known name.

    >>> unknown("method", "two-stge", ["two-stage", "ft"])
    UsageError("There is no method 'two-stge'. Did you mean 'two-stage'? Known: ft, two-stage.")
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"There is no {kind} {name!r}.{hint} Known: {', '.join(names)}.")


# Text from outside

# They reverse or reorder the text around them on a terminal and on a page.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def require_words(name: str, text: Any) -> str:
    r"""Return a text in one line, without control characters; otherwise raise a `UsageError`.

    >>> require_words("The id", "2031-17\nok signature")
    Traceback (most recent call last):
    unweave.errors.UsageError: The id holds '\n' at position 7. Write it in one line, without control characters.
    """
    require_type(name, text, str, "a string")
    for place, letter in enumerate(text):
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _REORDERING:
            raise UsageError(
                f"{name} holds {letter!r} at position {place}. Write it in one line, without control characters."
            )
    return str(text)


def printable(text: str) -> str:
    r"""Return text with control characters escaped, so that it cannot change the terminal. Lines stay.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\nc'
    """
    return "".join(letter if letter == "\n" else _escaped(letter) for letter in text)


def on_one_line(text: str) -> str:
    r"""Return text with control characters and line breaks escaped, so that it cannot begin a line of its own.

    >>> on_one_line("17\nok signature")
    '17\\nok signature'
    """
    return "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return letter.encode("unicode_escape").decode()
