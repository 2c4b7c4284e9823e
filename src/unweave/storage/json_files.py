"""JSON from outside, and the form of JSON that is hashed and signed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from unweave.errors import UsageError
from unweave.storage.files import refuse_pickled, require_plain

JSON_BYTES = 256 * 2**20
DEEPEST = 100  # levels of lists and objects; our own files have fewer than ten
LARGEST = 2**64  # of whole numbers


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


def read_json(path: Path, *, limit: int = JSON_BYTES, any_number: bool = False) -> Any:
    """Read JSON. Raise a `UsageError` if it is not a regular file, is larger than the limit, or is not valid JSON.

    Duplicate names, more than 100 levels and, unless ``any_number``, numbers that are not finite and whole numbers
    above 64 bits are not valid.
    """
    return _read(path, limit, _parsed_with_any_number if any_number else _parsed)


def check_json_files(folder: Path) -> None:
    """Refuse a folder with JSON that says two things or is nested too deeply, before another library reads it."""
    for file in sorted(folder.glob("*.json")):
        read_json(file, any_number=True)  # configurations may have infinite numbers, and lengths of 1e30


def read_json_lines(path: Path, *, limit: int = JSON_BYTES, strict: bool = True) -> list[Any]:
    """Read a file of one JSON value a line, with the checks of `read_json`. Unless ``strict``, skip lines that fail."""
    found: list[Any] = _read(path, limit, lambda text: list(_lines(text, strict=strict)))
    return found


def _read(path: Path, limit: int, parse: Any) -> Any:
    refuse_pickled(path, "JSON")
    try:
        size = require_plain(path)
        if size > limit:
            raise UsageError(f"{path} cannot be read: it has {size} bytes, more than the limit of {limit}.")
        return parse(path.read_bytes().decode())
    except RecursionError:
        raise UsageError(f"{path} cannot be read: its JSON is nested too deeply.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read: {error}") from error


def _lines(text: str, *, strict: bool) -> Iterator[Any]:
    for line in filter(str.strip, text.split("\n")):
        try:
            yield _parsed(line)
        except (ValueError, RecursionError):
            if strict:
                raise


def _parsed(text: str) -> Any:
    content = json.loads(
        text, parse_constant=_no_constant, parse_float=_finite, parse_int=_short, object_pairs_hook=_without_duplicates
    )
    _require_shallow(content)
    if "\\ud" in text.lower():  # half of a surrogate pair cannot be written to any file or terminal
        json.dumps(content, ensure_ascii=False).encode()
    return content


def require_plain_values(content: Any) -> None:
    """Raise a `ValueError` for values that our JSON cannot hold: numbers that are too large, half characters.

    >>> require_plain_values({"seed": 2**70})
    Traceback (most recent call last):
    ValueError: the number 1180591620717411303424 is too large
    """
    level = [content]
    while level:
        for value in level:
            if isinstance(value, int) and abs(value) >= LARGEST:
                raise ValueError(f"the number {hex(value)[:40] if value.bit_length() > 99 else value} is too large")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{value} is not a number that can be kept")
            if isinstance(value, str):
                value.encode()
        inner = [
            [*one, *one.values()] if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)
        ]
        level = [value for values in inner for value in values]


def _parsed_with_any_number(text: str) -> Any:
    content = json.loads(text, object_pairs_hook=_without_duplicates)
    _require_shallow(content)
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _short(digits: str) -> int:
    number = int(digits) if len(digits) <= 20 else LARGEST
    if abs(number) >= LARGEST:
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the name {twice[:40]!r} occurs twice in one object")
    return found


def _require_shallow(content: Any) -> None:
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(DEEPEST):
        inner = [entry.values() if isinstance(entry, dict) else entry for entry in level]
        level = [entry for entries in inner for entry in entries if isinstance(entry, dict | list)]
    if level:
        raise ValueError("its JSON is nested too deeply.")
