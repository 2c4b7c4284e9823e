"""Errors and warnings, sorted by who can fix the cause; checks of arguments; and text made safe to print."""

from __future__ import annotations

import difflib
import math
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

LONGEST_NAME = 255  # bytes of a file's name


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


def require_names(names: Any) -> None:
    """Raise a `UsageError` for what is no list of names. One text is none, although it has parts.

    >>> require_names("cat")
    Traceback (most recent call last):
    unweave.errors.UsageError: names must be a list of names, not str.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Sequence):
        raise UsageError(f"names must be a list of names, not {type(names).__name__}.")


def require_seed(seed: Any) -> int:
    """Return a seed as a number that every random generator takes, or raise a `UsageError`."""
    found = as_whole("seed", seed)
    if not 0 <= found < 2**32:
        raise UsageError(f"seed is {found}, but must be from 0 to {2**32 - 1}.")
    return found


def plain_value(value: Any) -> Any:
    """Return a number of NumPy or torch as one of Python, also from an array or tensor without dimensions.

    >>> import numpy, torch
    >>> plain_value(numpy.int64(3)), plain_value(torch.tensor(0.5)), plain_value("3")
    (3, 0.5, '3')
    """
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        try:
            return value.item()
        except (RuntimeError, ValueError, NotImplementedError):  # a tensor without a value
            return value
    return value


def as_whole(name: str, value: Any, *, at_least: int | None = None) -> int:
    """Return a whole number, also of NumPy or torch, or raise a `UsageError`.

    >>> as_whole("k", 0, at_least=1)
    Traceback (most recent call last):
    unweave.errors.UsageError: k is 0, but must be at least 1.
    """
    found = plain_value(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise UsageError(f"{name} must be a whole number, not {short(value)}.")
    _require_range(name, found, at_least)
    if abs(found) >= 2**63:
        raise UsageError(f"{name} is a number of {found.bit_length()} bits, but may have at most 63.")
    return found


def as_number(name: str, value: Any, *, at_least: float | None = None) -> float:
    """Return a finite number, also of NumPy or torch, or raise a `UsageError`.

    >>> as_number("seconds", "soon")
    Traceback (most recent call last):
    unweave.errors.UsageError: seconds must be a number, not 'soon'.
    """
    found = plain_value(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise UsageError(f"{name} must be a number, not {short(value)}.")
    try:
        number = float(found)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{name} is {short(found)}, but must be a finite number.")
    _require_range(name, number, at_least)
    return number


def _require_range(name: str, found: float, at_least: float | None) -> None:
    if at_least is not None and found < at_least:
        raise UsageError(f"{name} is {short(found)}, but must be at least {at_least:g}.")


def as_path(name: str, value: Any) -> Path:
    """Return a path, or raise a `UsageError`.

    >>> as_path("out", 7)
    Traceback (most recent call last):
    unweave.errors.UsageError: out must be a path, not 7.
    """
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str) or "\0" in found:
        raise UsageError(f"{name} must be a path, not {short(value)}.")
    if any(len(part.encode(errors="replace")) > LONGEST_NAME for part in Path(found).parts):
        raise UsageError(f"{name} has a part that is longer than a file's name may be: {short(found)}.")
    return Path(str(found))


def short(value: Any) -> str:
    """Return a value for an error: its beginning, or its type where it is no single value."""
    if not isinstance(value, str | int | float | complex | bytes | None):
        return f"{type(value).__name__}"
    text = repr(value) if not isinstance(value, int) or abs(value) < 2**63 else f"{value.bit_length()} bits"
    return text if len(text) <= 60 else f"{text[:60]}…"


def unknown(kind: str, name: Any, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name. It suggests the most similar known name.

    >>> unknown("method", "two-stge", ["two-stage", "ft"])
    UsageError("There is no method 'two-stge'. Did you mean 'two-stage'? Known: ft, two-stage.")
    """
    names = sorted(map(str, known))
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"There is no {kind} {short(name)}.{hint} Known: {', '.join(names)}.")


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
    if text.isprintable():
        return text
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
