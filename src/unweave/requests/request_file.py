"""REQUEST.yaml: read, checked key by key, and written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from unweave.errors import UsageError
from unweave.requests.request_fields import keys_of, schema_of
from unweave.requests.strict_yaml import NotPlainError, parse_yaml
from unweave.storage import require_plain

LARGEST = 8 * 2**20  # bytes; more is read for minutes


def read_request(path: Path, request: type) -> dict[str, Any]:
    """Return the fields of a request that a file gives. Paths are relative to the folder of the file."""
    try:
        if require_plain(path) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST // 2**20} MB. A request file is never that large.")
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except NotPlainError as error:
        raise UsageError(f"{path} {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist. Give a request file; `unweave init` writes one.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold keys with values, such as `model: CHECKPOINT`.")
    return _fields(content, path, request)


def _fields(content: dict[Any, Any], path: Path, request: type) -> dict[str, Any]:
    known, properties = keys_of(request), schema_of(request)["properties"]
    found = {}
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
            raise UsageError(f"{path} has the unknown key {key!r}. {hint}")
        if value is None:
            continue
        _require_type(key, value, properties[key], path)
        field = known[key]
        found[field.name] = _beside(path.parent, key, value) if field.metadata["path"] else value
    return found


PYTHON = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list}


def _require_type(key: str, value: Any, schema: dict[str, Any], path: Path) -> None:
    if choices := schema.get("enum"):
        if value not in choices:
            raise UsageError(f"{path} has {key}: {value!r}, but it must be one of {', '.join(choices)}.")
        return
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    is_odd_bool = isinstance(value, bool) and "boolean" not in kinds
    if is_odd_bool or not any(isinstance(value, PYTHON[kind]) for kind in kinds):  # type: ignore[arg-type]
        quote = ' Quote it: "…".' if kinds == ["string"] and not isinstance(value, dict | list) else ""
        raise UsageError(f"{path} has {key}: {value!r}, but it must be {_or(kinds)}.{quote}")


def _or(kinds: Iterable[str]) -> str:
    words = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
    return " or ".join({**words, "object": "keys with values", "array": "a list"}[kind] for kind in kinds)


def _beside(folder: Path, key: str, value: Any) -> Any:
    """Return a path as seen from the folder of the file. Others stay as they are, as Hub names do."""
    if not isinstance(value, str) or folder == Path():
        return value
    there = folder / value
    try:
        is_there = key == "out" or there.exists() or any(folder.glob(value))
    except (OSError, ValueError, NotImplementedError):  # a condition is no pattern
        is_there = False
    return str(there) if is_there else value
