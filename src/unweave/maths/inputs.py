"""What functions of tensors are given, checked before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unweave.errors import UsageError, require_type


def require_tensor(name: str, value: Any, *, dims: int | None = None) -> None:
    """Raise a `UsageError` for what is no dense tensor of real numbers with values.

    >>> require_tensor("losses", [1.0])
    Traceback (most recent call last):
    unweave.errors.UsageError: losses must be a tensor, not list.
    """
    require_type(name, value, Tensor, "a tensor")
    if value.layout != torch.strided or value.is_meta or value.is_complex() or value.dtype == torch.bool:
        where = " on the device meta" if value.is_meta else ""
        kind = f"{value.layout} tensor of {value.dtype}{where}".replace("torch.", "")
        raise UsageError(f"{name} must be a dense tensor of real numbers, not a {kind}.")
    if dims is not None and value.ndim != dims:
        raise UsageError(f"{name} must have {dims} dimensions, but its shape is {tuple(value.shape)}.")


def require_vector(name: str, value: Any) -> None:
    """Raise a `UsageError` for what is no vector with at least one number."""
    require_tensor(name, value)
    if value.ndim != 1 or len(value) == 0:
        raise UsageError(f"{name} must be a non-empty vector of losses, but its shape is {tuple(value.shape)}.")


def require_gradient(name: str, value: Any) -> None:
    """Raise a `UsageError` for what is no list of tensors, one per parameter. Sharded tensors are taken."""
    require_type(name, value, (list, tuple), "a list of tensors, one per parameter")
    for part in value:
        require_type(f"Every part of {name}", part, Tensor, "a tensor")
        if part.layout != torch.strided or part.is_meta or part.is_complex():
            raise UsageError(f"Every part of {name} must be a dense tensor of real numbers with values.")


def require_gradients(name: str, value: Any) -> Sequence[Sequence[Tensor]]:
    """Return gradients of one model; raise a `UsageError` where they are none, or differ in shape."""
    require_type(name, value, (list, tuple), "a list of gradients")
    for gradient in value:
        require_gradient(f"a gradient of {name}", gradient)
    found: Sequence[Sequence[Tensor]] = value
    if any([part.shape for part in gradient] != [part.shape for part in found[0]] for gradient in found):
        raise UsageError(f"The gradients of {name} must have the same shapes.")
    return found
