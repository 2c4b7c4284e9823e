"""The fields of a request: how each is called in a file and on the command line, and what it may hold."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any


def option(
    default: Any, *, help: str, key: str | None = None, path: bool = False, choices: tuple[str, ...] = ()
) -> Any:
    """Declare a field: its default, its help text, its key if that differs from its name, and whether it is a path."""
    more: dict[str, Any] = {"metadata": {"help": help, "key": key, "path": path, "choices": choices}}
    return (
        dataclasses.field(default_factory=dict, **more) if default == {} else dataclasses.field(default=default, **more)
    )


def keys_of(request: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields by their keys.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Example:
    ...     id_column: str | None = option(None, key="id", help="Column of the ids.")
    ...     max_memory: str | None = option(None, help="Most memory.")
    >>> {key: field.name for key, field in keys_of(Example).items()}
    {'id': 'id_column', 'max-memory': 'max_memory'}
    """
    return {
        field.metadata.get("key") or field.name.replace("_", "-"): field
        for field in dataclasses.fields(request)
        if "help" in field.metadata
    }


def schema_of(request: type) -> dict[str, Any]:
    """Return the JSON schema of a request's file, for editors."""
    hints = typing.get_type_hints(request)
    properties = {key: _property(field, hints[field.name]) for key, field in keys_of(request).items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "unweave request",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _property(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"description": field.metadata["help"]}
    if choices := field.metadata["choices"]:
        return found | {"enum": list(choices)}
    kinds = list(dict.fromkeys(kind for one in _alternatives(hint) if (kind := _json_type(one))))
    found["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "array" in kinds:
        found["items"] = {"type": ["string", "integer"]}
    return found


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )


def _json_type(hint: Any) -> str | None:
    """Return the JSON type of a Python type; None for what a file cannot hold."""
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or kind is types.NoneType:
        return None
    for python, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if kind is python:
            return name
    if issubclass(kind, Mapping):
        return "object"
    return "array" if issubclass(kind, typing.Sequence) else None
