"""Number formats and memory layouts that make a GPU fast and change results by rounding only.

Weights, gradients and the state of a method stay in float32. Only the inside of a forward and backward pass may run
in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unweave.errors import unknown

Precision = Literal["auto", "float32", "bfloat16"]
Resolved = Literal["float32", "bfloat16"]


def resolve_precision(precision: Precision, device: torch.device) -> Resolved:
    """Return the precision to use. ``auto`` means bfloat16 on CUDA and float32 elsewhere.

    >>> resolve_precision("auto", torch.device("cpu"))
    'float32'
    """
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
    if precision == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    return precision


def autocast(device: torch.device, precision: Resolved) -> AbstractContextManager[Any]:
    """Return the context for a forward pass in this precision."""
    if precision == "float32" and not torch.is_autocast_enabled(device.type):
        return nullcontext()  # a tenth of the time of one that changes nothing
    # A recorded pass must cast the weights anew, so that it sees their changes.
    cached = device.type != "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=cached)


@contextmanager
def fast_products(device: torch.device, precision: Resolved) -> Iterator[None]:
    """Let the remaining float32 products of a bfloat16 run use TF32. A float32 run stays in float32."""
    if device.type != "cuda" or precision == "float32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def use_channels_last(model: nn.Module, device: torch.device) -> list[Tensor]:
    """Give a convolutional model on CUDA the memory layout of the fast kernels. Return the changed tensors.

    Only the order in memory changes. Inputs stay as they are, because the first convolution accepts any layout.
    """
    if device.type != "cuda" or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return []
    every = [*model.parameters(), *model.buffers()]
    changed = [tensor for tensor in every if tensor.ndim == 4 and tensor.is_contiguous()]
    for tensor in changed:
        tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return changed


def use_contiguous(tensors: list[Tensor]) -> None:
    """Undo `use_channels_last`."""
    for tensor in tensors:
        tensor.data = tensor.data.contiguous()


@contextmanager
def channels_last(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Use `use_channels_last` inside, and restore the layout afterwards."""
    changed = use_channels_last(model, device)
    try:
        yield
    finally:
        use_contiguous(changed)


@contextmanager
def exact_head(model: nn.Module, precision: Resolved) -> Iterator[None]:
    """Run the last linear layer in float32, whatever the precision of the rest.

    Near 20, bfloat16 has steps of 1/8. With such logits, attacks would rank confident samples by rounding errors.
    """
    linear = [module for module in model.modules() if type(module) is nn.Linear and "forward" not in vars(module)]
    if precision == "float32" or not linear:
        yield
        return
    head = linear[-1]

    def forward(inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, enabled=False):
            return nn.functional.linear(inputs.to(head.weight.dtype), head.weight, head.bias)

    head.forward = forward  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        del head.forward
