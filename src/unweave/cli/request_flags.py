"""The flags of a request, made from its fields: every key of a request file is a flag, with the same help."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli.options import pairs
from unweave.requests import Request, keys_of, schema_of

PLAIN = {"integer": int, "number": float, "boolean": bool}
RequestFile = Annotated[
    Path | None, typer.Argument(metavar="REQUEST.yaml", help="Request file. Flags replace its values.")
]


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with a request file and its flags; ``command`` is called with the request, by keyword.

    Args:
        command: The function. Its other parameters stay flags of their own.

    Returns:
        A function with the signature that typer reads.
    """
    own = [one for one in inspect.signature(command).parameters.values() if one.name != "request"]
    hints = typing.get_type_hints(command, include_extras=True)
    flags = keys_of(Request)
    properties = schema_of(Request)["properties"]

    def called(file: Path | None = None, **given: Any) -> None:
        rest = {one.name: given.pop(one.name) for one in own}
        changes = {name: _read(value, name) for name, value in given.items() if value not in (None, [])}
        command(request=Request.load(file, **changes) if file else Request(**changes), **rest)

    by_keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("file", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=RequestFile)
    ]
    for key, field in flags.items():
        annotation = _annotation(key, properties[key])
        parameters.append(inspect.Parameter(field.name, by_keyword, default=None, annotation=annotation))
    parameters += [one.replace(kind=by_keyword, annotation=hints[one.name]) for one in own]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def _annotation(key: str, schema: Mapping[str, Any]) -> Any:
    """Return the type of a flag with its help."""
    flag = f"--{key}"
    if schema.get("type") == "object":
        return Annotated[list[str] | None, typer.Option(flag, metavar="KEY=VALUE", help=schema["description"])]
    kind = PLAIN.get(schema.get("type", ""), str) if isinstance(schema.get("type"), str) else str
    metavar = "|".join(schema["enum"]) if "enum" in schema else None
    return Annotated[kind | None, typer.Option(flag, metavar=metavar, help=schema["description"])]


def _read(value: Any, name: str) -> Any:
    return pairs(value) if isinstance(value, list) else value
