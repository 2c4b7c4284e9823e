"""Operations on all tensors of a batch, which may be nested in tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def map_tensors(function: Callable[[Tensor], Any], data: Any) -> Any:
    """Apply a function to every tensor of a batch and keep the nesting."""
    if isinstance(data, Tensor):
        return function(data)
    if isinstance(data, (tuple, list)):  # first, because asking for a Mapping takes longer
        return tuple([map_tensors(function, value) for value in data])
    if isinstance(data, Mapping):
        return {name: map_tensors(function, value) for name, value in data.items()}
    return data


def tensors_of(data: Any) -> list[Tensor]:
    """Return all tensors of a batch, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, data)
    return found


def form_of(data: Any, count: int) -> tuple[Any, ...] | None:
    """Return the shapes of one sample's tensors, nested as the batch is. Batches of one form can be joined.

    None if the batch holds anything but tensors with one entry for each of ``count`` samples.

    >>> form_of((torch.zeros(4, 3, 2), torch.zeros(4)), 4), form_of((torch.zeros(4, 3, 2), "four"), 4)
    ((torch.Size([3, 2]), torch.Size([])), None)
    """
    if isinstance(data, Tensor):
        return data.shape[1:] if data.ndim and data.shape[0] == count else None
    values = data if isinstance(data, (tuple, list)) else data.values() if isinstance(data, Mapping) else (None,)
    found = []
    for value in values:
        form = form_of(value, count) if value is not None else None
        if form is None:
            return None
        found.append(form)
    return tuple(found)


def join(parts: list[Any]) -> Any:
    """Concatenate batches of one form (`form_of`)."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, (tuple, list)):
        return tuple([join(list(values)) for values in zip(*parts, strict=True)])
    if isinstance(first, Mapping):
        return {name: join([part[name] for part in parts]) for name in first}
    raise TypeError(f"Batches of {type(first).__name__} cannot be concatenated.")


def shapes(data: Any) -> tuple[tuple[int, ...], ...]:
    """Return the shape of one sample: the shape of every tensor without its first dimension."""
    return tuple(tuple(tensor.shape[1:]) for tensor in tensors_of(data))


def same(first: Any, second: Any) -> bool:
    """Tell whether two batches hold the same values. NaN equals NaN."""
    pairs = list(zip(tensors_of(first), tensors_of(second), strict=True))
    return all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def byte_size(data: Any) -> int:
    """Return the number of bytes that the tensors of a batch use."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(data))


def to_device(data: Any, device: torch.device) -> Any:
    """Copy every tensor of a batch to a device without waiting for what the device is doing."""

    def copy(tensor: Tensor) -> Tensor:
        if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=True)

    return map_tensors(copy, data)
