"""Labels of the data as the numbers of the model's classes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable


def label_numbers(table: DataTable, column: str, names: Mapping[str, int], classes: int | None) -> Tensor:
    """Return the label of every row as the model counts its classes.

    Args:
        table: The data.
        column: The column of the labels: names, whole numbers, or numbers to predict for a model with one output.
        names: The model's classes by name.
        classes: How many classes the model has. None: not known.

    Returns:
        One label for each row.

    Raises:
        UsageError: A label is missing, or the model has no such class.
    """
    found = table.column(column)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        raise UsageError(
            f"{found.null_count} rows of {table.name} have no {column!r} (first: row {row}). Take them out."
        )
    values = found.to_numpy()
    if values.dtype.kind in "iu" and (own := table.label_names.get(column)) and _speaks(names, own):
        values = _words(values, own, table, column)
    if values.dtype.kind == "O":
        return _by_name(values, names, table, column, classes)
    if values.dtype.kind == "f" and (classes or 0) > 1 and (values == np.floor(values)).all():
        values = values.astype(np.int64)  # as numbers come out of a table that had gaps once
    labels = torch.from_numpy(values.astype(np.float32 if values.dtype.kind == "f" else np.int64))
    if classes is not None and classes > 1 and not labels.is_floating_point():
        _require_below(labels, classes, table, column)
    return labels


def _speaks(names: Mapping[str, int], own: Sequence[str]) -> bool:
    """Tell whether the model knows its classes by the names of the data, and not as LABEL_0, LABEL_1."""
    return bool({*names} & {*own})


def _words(values: Any, own: Sequence[str], table: DataTable, column: str) -> Any:
    if values.min() < 0 or values.max() >= len(own):
        raise UsageError(
            f"The column {column!r} of {table.name} has names for {len(own)} classes, but other numbers too."
        )
    return np.asarray(own, dtype=object)[values]


def _by_name(values: Any, names: Mapping[str, int], table: DataTable, column: str, classes: int | None) -> Tensor:
    """Return labels that are names, or lists of numbers for several labels at once."""
    if not isinstance(values[0], str):
        try:
            return torch.from_numpy(np.stack([np.asarray(value) for value in values]))
        except (ValueError, TypeError) as error:
            raise UsageError(f"The labels in {column!r} of {table.name} cannot become numbers: {error}") from error
    if not names and table.by_folder and len(folders := sorted({*values})) == classes:
        names = {name: number for number, name in enumerate(folders)}  # as torchvision's ImageFolder counts them
    if not names:
        count = f" (0 to {classes - 1})" if classes else ""
        raise UsageError(
            f"The labels in {column!r} of {table.name} are names (first: {values[0]!r}), but the model knows its "
            f"classes by number only{count}. Add a column with their numbers, and name it with --label."
        )
    unknown = sorted({*values} - {*names})
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"{len(unknown)} labels of {table.name} are not classes of the model (first: {unknown[0]!r}).{hint} The "
            f"model's: {_some(names)}."
        )
    return torch.tensor([names[value] for value in values])


def _require_below(labels: Tensor, classes: int, table: DataTable, column: str) -> None:
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        row = int(bad[0, 0])
        raise UsageError(
            f"{len(bad)} rows of {table.name} have a {column!r} that is not a class of the model (first: row {row} has "
            f"{labels[row].item()}); it has {classes} classes (0 to {classes - 1})."
        )


def _some(names: Mapping[str, int]) -> str:
    shown = list(names)[:10]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
