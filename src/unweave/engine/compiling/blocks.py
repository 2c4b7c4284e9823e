"""The first convolution over blocks of pixels: the same function in a shape that suits matrix units.

The first convolution of an image model often has stride 2 and three input channels, but kernels are made for multiples
of eight channels. With the pixels of each 2×2 block as channels, it becomes a convolution with half the kernel size and
stride 1 over 12 channels, padded to 16. Each output is the same sum of products, plus zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

FEW = 4  # up to this many channels leave most of a kernel's width unused
WIDTH = 8  # channels that kernels process at a time
SMALLEST = 5  # smaller kernels of a first convolution gain nothing


def convolve(data: Tensor, weight: Tensor, bias: Tensor | None = None, *more: Any, **others: Any) -> Tensor:
    """Compute `torch.conv2d`, over blocks of pixels where shape and device suit."""
    given = {**dict(zip(("stride", "padding", "dilation", "groups"), more, strict=False)), **others}
    if suits(data, weight, **given) and applies(data):
        return over_blocks(data, weight, bias, padding=_pair(given.get("padding", 0)))
    return torch.conv2d(data, weight, bias, *more, **others)


def applies(data: Tensor) -> bool:
    """Tell whether the device has kernels that gain from blocks."""
    return data.device.type == "cuda"


def suits(
    data: Tensor, weight: Tensor, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> bool:
    """Tell whether a convolution has stride 2, few channels and a large kernel, without dilation or groups."""
    return (
        data.dim() == 4
        and weight.shape[1] <= FEW
        and min(weight.shape[2:]) >= SMALLEST
        and not isinstance(padding, str)
        and (_pair(stride), _pair(dilation), groups) == ((2, 2), (1, 1), 1)
    )


def over_blocks(data: Tensor, weight: Tensor, bias: Tensor | None, *, padding: tuple[int, int]) -> Tensor:
    """Compute a convolution with stride 2 as one with stride 1 over blocks of 2×2 pixels.

    Output y sums the products of input 2y + i and weight i over i. With i = 2a + b, input 2(y + a) + b is pixel b of
    block y + a, so a runs over half the kernel.

    >>> data, weight = torch.randn(2, 3, 9, 8), torch.randn(4, 3, 7, 7)
    >>> expected = torch.conv2d(data, weight, stride=2, padding=3)
    >>> torch.allclose(over_blocks(data, weight, None, padding=(3, 3)), expected, atol=1e-4)
    True
    """
    pads: list[int] = []  # the last dimension first
    for size, kernel, pad in reversed(list(zip(data.shape[2:], weight.shape[2:], padding, strict=True))):
        outputs = (size + 2 * pad - kernel) // 2 + 1
        needed = 2 * (outputs + (kernel + 1) // 2 - 1)
        pads += [pad, needed - size - pad]  # negative where no output sees the last pixels
    blocks = _blocks(functional.pad(data, pads))
    weights = _blocks(functional.pad(weight, (0, weight.shape[3] % 2, 0, weight.shape[2] % 2)))
    fill = (0, 0, 0, 0, 0, -blocks.shape[1] % WIDTH)
    return torch.conv2d(functional.pad(blocks, fill), functional.pad(weights, fill), bias)


def _blocks(images: Tensor) -> Tensor:
    """Turn the pixels of every 2×2 block into channels."""
    return functional.pixel_unshuffle(images, 2)


def _pair(value: Any) -> tuple[Any, ...]:
    """Return an argument for two dimensions, given once or twice, as a pair."""
    return (value, value) if isinstance(value, int) else tuple(value)
