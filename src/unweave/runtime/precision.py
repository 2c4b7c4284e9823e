"""Number formats and memory layouts that make a GPU fast and leave results within rounding.

Weights, gradients and everything a method keeps stay in float32; only the inside of a forward and backward pass may
run in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from unweave.errors import unknown

Precision = Literal["auto", "float32", "bfloat16"]
Resolved = Literal["float32", "bfloat16"]


def resolve_precision(precision: Precision, device: torch.device) -> Resolved:
    """Return the precision that ``auto`` stands for: bfloat16 on CUDA, float32 elsewhere.

    >>> resolve_precision("auto", torch.device("cpu"))
    'float32'
    """
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
    if precision == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    return precision


def autocast(device: torch.device, precision: Resolved) -> torch.autocast:
    """Return the context of a forward pass in this precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def fast_products(device: torch.device, precision: Resolved) -> Iterator[None]:
    """Let what is left of float32 products in a bfloat16 run use TF32; float32, asked for, stays float32."""
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
    """Lay out a convolutional model on CUDA as its kernels like it; return the tensors that were changed.

    Only the order in memory changes. Inputs need no care: the first convolution takes any layout.
    """
    if device.type != "cuda" or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return []
    every = [*model.parameters(), *model.buffers()]
    changed = [tensor for tensor in every if tensor.ndim == 4 and tensor.is_contiguous()]
    for tensor in changed:
        tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return changed


def use_contiguous(tensors: list[Tensor]) -> None:
    """Take back what `use_channels_last` did."""
    for tensor in tensors:
        tensor.data = tensor.data.contiguous()


@contextmanager
def channels_last(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Lay out the model for its kernels inside, and as it was afterwards."""
    changed = use_channels_last(model, device)
    try:
        yield
    finally:
        use_contiguous(changed)


@contextmanager
def exact_head(model: nn.Module, precision: Resolved) -> Iterator[None]:
    """Let the last linear layer run in float32, whatever the rest does.

    In bfloat16 a logit of 20 has steps of 1/8: attacks would rank samples that the model is sure of by rounding.
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
