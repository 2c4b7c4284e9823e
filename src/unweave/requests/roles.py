"""Which columns hold the inputs, the label and the id: named, or obvious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable

Kind: TypeAlias = Literal["text", "image", "numbers", "own"]  # own: whatever a function of the user takes
LABELS, IDS = ("label", "labels"), ("id", "ids")


@dataclass(frozen=True)
class Roles:
    """The columns of the inputs, of the label and, if there is one, of the id."""

    inputs: tuple[str, ...]
    label: str
    id: str | None = None


def find_roles(
    table: DataTable, kind: Kind, *, inputs: Sequence[str] = (), label: str | None = None, id_column: str | None = None
) -> Roles:
    """Return the columns by role: those that are named, and for the others the only one that fits.

    Args:
        table: The data.
        kind: What the model reads.
        inputs: The columns of the inputs, if they were named.
        label: The column of the label, if it was named.
        id_column: The column of the ids, if it was named.

    Returns:
        The columns.

    Raises:
        UsageError: A column is missing, or several fit.
    """
    label = table.require(label) if label else _only(table, "label", [name for name in LABELS if name in table.columns])
    ids = table.require(id_column) if id_column else next((name for name in IDS if name in table.columns), None)
    if not inputs:
        fit = [name for name in table.columns if name not in (label, ids) and fits(table, name, kind)]
        inputs = (_only(table, "input", fit, kind),)
    for name in inputs:
        if not fits(table, table.require(name), kind):
            raise UsageError(
                f"The column {name!r} of {table.name} holds {table.kind(name)}, but the model reads {kind}. Name "
                "another with --input."
            )
    return Roles(tuple(inputs), label, ids)


def obvious_roles(table: DataTable, kind: Kind) -> Roles:
    """Return the columns that need not be named. A role without an obvious column is empty."""
    labels = [name for name in LABELS if name in table.columns]
    ids = next((name for name in IDS if name in table.columns), None)
    label = labels[0] if len(labels) == 1 else ""
    fit = [name for name in table.columns if name not in (label, ids) and fits(table, name, kind)]
    return Roles((fit[0],) if len(fit) == 1 else (), label, ids)


def _only(table: DataTable, role: str, fit: Sequence[str], kind: str = "") -> str:
    if len(fit) == 1:
        return fit[0]
    words = f"{kind} column for the input" if kind not in ("", "own") else f"{role} column"
    found = f"{len(fit)} fit ({', '.join(fit)})" if fit else f"its columns are {', '.join(table.columns)}"
    raise UsageError(f"{table.name} has no obvious {words}: {found}. Name one with --{role}.")


def fits(table: DataTable, column: str, kind: Kind) -> bool:
    """Tell whether a column can hold what a model reads: text, images (as bytes, files or numbers), or numbers."""
    from pyarrow import types

    found = table.kind(column)
    if kind == "own":
        return True
    is_text = types.is_string(found) or types.is_large_string(found)
    if kind == "text":
        return bool(is_text)
    if kind == "image":
        is_bytes = types.is_binary(found) or types.is_large_binary(found)
        return bool(is_bytes or is_text or types.is_list(found) or _is_picture(found))
    inner = found.value_type if types.is_list(found) or types.is_fixed_size_list(found) else found
    return bool(types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner))


def _is_picture(found: object) -> bool:
    """Tell whether this is the form of the Hub: a record of the image's bytes and its path."""
    from pyarrow import types

    return types.is_struct(found) and "bytes" in {field.name for field in found}  # type: ignore[attr-defined]
