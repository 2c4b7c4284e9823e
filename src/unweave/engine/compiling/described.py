"""Pickles of models and batches without the values of their weights: another process makes tensors of the same form.

Whole numbers are kept, because models use them as positions; what has a fraction becomes zero.
"""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

FEW = 1 << 20  # whole numbers of larger tensors are not kept either


def describe(value: Any) -> bytes:
    """Return the pickle of a value; raise `pickle.PicklingError` or `TypeError` if another process cannot read it."""
    file = io.BytesIO()
    _Describer(file).dump(value)
    return file.getvalue()


def make(data: bytes) -> Any:
    """Return the value that `describe` wrote, with tensors of the same form on the same devices.

    >>> make(describe({"weight": torch.tensor([1.5, 2.5]), "places": torch.tensor([3, 4])}))
    {'weight': tensor([0., 0.]), 'places': tensor([3, 4])}
    """
    return _Maker(io.BytesIO(data)).load()


class _Describer(pickle.Pickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._seen: list[Tensor] = []  # kept, so that no other tensor gets the id of one

    def persistent_id(self, obj: Any) -> Any:
        """Describe a tensor."""
        if not isinstance(obj, Tensor):
            return None
        if type(obj) not in (Tensor, nn.Parameter):
            raise pickle.PicklingError(f"a {type(obj).__name__} cannot be described")
        self._seen.append(obj)
        is_whole = not obj.is_floating_point() and not obj.is_complex()
        is_kept = is_whole and not obj.is_meta and obj.numel() <= FEW
        values = obj.detach().cpu().numpy() if is_kept else None
        form = tuple(obj.shape), obj.stride(), obj.dtype, obj.device
        return id(obj), form, type(obj) is nn.Parameter, obj.requires_grad, values

    def reducer_override(self, obj: Any) -> Any:
        """Refuse what only this process's script defines."""
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the script that runs")
        return NotImplemented


class _Maker(pickle.Unpickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._made: dict[int, Tensor] = {}  # tied weights stay tied

    def persistent_load(self, pid: Any) -> Tensor:
        """Make the tensor that was described."""
        key, (shape, stride, dtype, device), is_parameter, requires_grad, values = pid
        if key not in self._made:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
            if values is not None:
                tensor.copy_(torch.from_numpy(values))
            self._made[key] = nn.Parameter(tensor, requires_grad) if is_parameter else tensor
        return self._made[key]
