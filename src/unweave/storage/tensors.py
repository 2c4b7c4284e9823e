"""Tensors from files whose reading cannot run code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.storage.files import refuse_pickled, require_plain


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Before safetensors allocates anything, it checks the length of the header and every offset against the size of the
    file.
    """
    _require_safetensors(path)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return tensors


def read_array(path: Path) -> Tensor:
    """Read a NumPy file without unpickling. The file is mapped, so a false size in its header allocates nothing."""
    try:
        require_plain(path)
        return torch.from_numpy(np.array(np.load(path, mmap_mode="r", allow_pickle=False)))
    except (OSError, ValueError, TypeError, EOFError, SyntaxError, OverflowError, BadZipFile, TokenError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read as a NumPy array: {error}") from error


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes that a safetensors file declares, without reading the tensors."""
    _require_safetensors(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _require_safetensors(path: Path) -> None:
    refuse_pickled(path)
    try:
        if not path.exists():
            raise UsageError(f"{path} cannot be read: the file does not exist.")
    except OSError as error:  # such as a name that is too long
        raise UsageError(f"{path} cannot be read: {error}") from error
    if path.suffix != ".safetensors":
        raise UsageError(f"{path.name} is not a safetensors file. Pass a file whose name ends in .safetensors.")
    try:
        require_plain(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def require_shapes(path: Path, found: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]) -> None:
    """Raise a `UsageError` if the weights have other names or shapes than the model, before they are read."""
    for words, names in (("lacks", wanted.keys() - found.keys()), ("also holds", found.keys() - wanted.keys())):
        if names:
            raise UsageError(f"{path} does not fit the model: it {words} {_some(names)}.")
    for name, shape in wanted.items():
        if found[name] != shape:
            raise UsageError(
                f"{path} does not fit the model: {name} has the shape {found[name]}, but the model needs {shape}."
            )


def require_kinds(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for whole numbers in the place of fractions, or the reverse: torch would round them."""
    for name, tensor in found.items():
        mine = wanted.get(name)
        if isinstance(mine, Tensor) and _has_fractions(tensor) != _has_fractions(mine):
            raise UsageError(
                f"{path} does not fit the model: {name} is {tensor.dtype}, but the model has {mine.dtype}."
            )


def _has_fractions(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _some(names: Iterable[str], most: int = 3) -> str:
    found = sorted(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
