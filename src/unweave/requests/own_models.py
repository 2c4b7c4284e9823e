"""MODULE:FUNCTION: a model of the user's own code, with weights from a safetensors file."""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from unweave.data import Data, Stored
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.pictures import read_image
from unweave.requests.roles import Kind, Roles, fits
from unweave.requests.spool import Spool
from unweave.runs import load_weights

RETURNS = "a torch nn.Module, or a pair of it and a function that turns a list of inputs into tensors"


LIBRARIES = ("timm:",)  # the model of a library, whose name has the same form
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def has_name_of_function(name: str) -> bool:
    """Tell whether a name has the form MODULE:FUNCTION."""
    return bool(FUNCTION.fullmatch(name)) and not name.startswith(LIBRARIES) and not os.path.exists(name)


def function_named(source: str) -> Any:
    """Return the function that ``module:function`` names, in the current folder or an installed package."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:  # `python -m` searches it, an installed command does not
        sys.path.append(here)
    return pkgutil.resolve_name(source)


@dataclass(frozen=True)
class OwnModel:
    """A model that a function returns. Without a function for its inputs, it reads numbers, or images as [0, 1]."""

    name: str
    weights: Path | None
    module: nn.Module = field(repr=False)
    make: Callable[[list[Any]], Any] | None = field(default=None, repr=False)
    names: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None
    has_folder: ClassVar[bool] = False

    @classmethod
    def open(cls, name: str, weights: Path | None) -> OwnModel:
        """Call the function."""
        try:
            found = function_named(name)()
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"The model {name} cannot be made: {error}") from error
        module, make = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not isinstance(module, nn.Module) or not (make is None or callable(make)):
            raise UsageError(f"{name} returned {type(found).__name__}, but must return {RETURNS}.")
        return cls(name, weights, module, make)

    @property
    def kind(self) -> Kind:
        """What the model reads."""
        return "own"

    @property
    def reader(self) -> None:
        """Nothing: the model has no processor or tokenizer of its own."""

    def read(self, table: DataTable, roles: Roles, labels: Tensor, *, skip_unreadable: bool) -> Stored:
        """Turn the inputs into tensors with the user's function, or as they are."""
        picture = not fits(table, roles.inputs[0], "numbers")
        return OwnInputs(table, roles, labels, self.make or (pixels(table.folder) if picture else _numbers))

    def load(self) -> nn.Module:
        """Return the model, with the weights of the file if one was named."""
        return (self.module if self.weights is None else load_weights(self.module, self.weights)).eval()

    def fresh(self, start: str | None) -> nn.Module:
        """Return another model of the function, with the weights of ``start`` if it is given."""
        module = OwnModel.open(self.name, None).module
        return module if start is None else load_weights(module, start)

    def parts(self) -> tuple[Any, ...]:
        """Return nothing: only the weights are saved."""
        return ()


class OwnInputs(Stored):
    """Inputs that a function turned into tensors, one batch of rows after the other, kept on disk.

    Several columns make one list of values a row.
    """

    def __init__(self, table: DataTable, roles: Roles, labels: Tensor, make: Callable[[list[Any]], Any]) -> None:
        self._labels = labels
        self.kept: dict[str, tuple[Spool, tuple[int, ...]]] = {}
        row = 0
        for batch in table.batches(roles.inputs):
            read = as_array if make is _numbers else list_of
            columns = [read(batch.column(number)) for number in range(len(roles.inputs))]
            values: Any = columns[0] if len(columns) == 1 else [list(one) for one in zip(*columns, strict=True)]
            found = make(values)
            self.alone = isinstance(found, Tensor)
            for name, tensor in {"": found}.items() if self.alone else dict(found).items():
                self._keep(name, tensor, len(batch), row)
            row += len(batch)

    def _keep(self, name: str, tensor: Any, count: int, row: int) -> None:
        if not isinstance(tensor, Tensor) or len(tensor) != count:
            raise UsageError(
                f"The function for the inputs must return tensors of one row for each of the {count} inputs, not "
                f"{type(tensor).__name__}."
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UsageError(f"The inputs of rows {row} to {row + count - 1} hold values that are not finite numbers.")
        array = tensor.detach().cpu().numpy()
        spool, shape = self.kept.setdefault(name, (Spool(array.dtype), array.shape[1:]))
        if array.shape[1:] != shape:
            raise UsageError(f"Inputs have the shapes {shape} and {array.shape[1:]}, but must all have the same.")
        spool.add(array)

    def __len__(self) -> int:
        return len(self._labels)

    def labels(self) -> Tensor:
        """Return the label of every row."""
        return self._labels

    def batch(self, rows: Tensor) -> Data:
        """Return the tensors of these rows."""
        found = {
            name: torch.from_numpy(np.stack([row.reshape(shape) for row in spool.read(rows)]))
            for name, (spool, shape) in self.kept.items()
        }
        labels = self._labels[rows]
        return (found[""], labels) if self.alone else {**found, "labels": labels}


def list_of(column: Any) -> list[Any]:
    """Return a column as Python values, which functions of the user get."""
    found: list[Any] = column.to_pylist()
    return found


def as_array(column: Any) -> Any:
    """Return a column of numbers, or of lists of equally many, as an array. It takes less memory than Python values."""
    from pyarrow import types

    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        inner = column.flatten()
        is_plain = not column.null_count and not inner.null_count and not types.is_nested(inner.type)
        if is_plain and len(column) and len(inner) % len(column) == 0 and _equally_long(column):
            return inner.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_pylist()


def _equally_long(column: Any) -> bool:
    from pyarrow import compute

    return len(compute.unique(compute.list_value_length(column))) == 1


def _numbers(values: Any) -> Tensor:
    try:
        found = torch.from_numpy(np.array(values, dtype=np.float32))
        return found[:, None] if found.ndim == 1 else found  # one column of numbers is a table with one column
    except (TypeError, ValueError) as error:
        raise UsageError(f"The inputs cannot become one tensor of numbers: {error}") from error


def pixels(folder: Path) -> Callable[[list[Any]], Tensor]:
    """Return a function that turns images into tensors of (3, height, width) from 0 to 1."""

    def make(values: list[Any]) -> Tensor:
        images = [read_image(value, folder, 3) for value in values]
        if None in images:
            raise UsageError(
                f"{images.count(None)} images cannot be read. Take their rows out or, if these are no images, let the "
                "function return a second one for its inputs."
            )
        try:
            pixels = np.stack([np.asarray(image) for image in images])
        except ValueError as error:
            raise UsageError(f"The images differ in size: {error}. Resize them, or return a function too.") from error
        return torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)

    return make
