"""Steps that are relative to the weights: scales, and Adam's metric."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.engine.workbench import Workbench
from unweave.maths import Gradient, squared_lengths

SMALL = 1e-6  # ε: gradients below this count as none
LEAST_SCALE = 0.02  # of the root mean square of all weights: what a tensor of zeros may move by


def weight_scales(bench: Workbench) -> Tensor:
    """Return the root mean square of each trained tensor: what a step is measured against."""
    parameters = [parameter.detach() for parameter in bench.parameters]
    sizes = torch.tensor([parameter.numel() for parameter in parameters], dtype=torch.float64, device=bench.device)
    every = bench.changed_weights()
    overall = (squared_lengths(every).sum() / sum(weight.numel() for weight in every)).sqrt()
    return (squared_lengths(parameters) / sizes).sqrt().clamp(min=LEAST_SCALE * overall)


def remember(squares: Gradient, gradient: Gradient, *, memory: float) -> None:
    """Move a running mean of squares towards the squares of a gradient, in place."""
    torch._foreach_mul_(squares, memory)
    torch._foreach_addcmul_(squares, gradient, gradient, value=1 - memory)


def metric(squares: Gradient, scales: Tensor, *, memory: float, steps: int) -> Gradient:
    """Return P = r / (√v + ε), one tensor for each weight, from a running mean of squares after some steps."""
    roots = torch._foreach_sqrt(torch._foreach_div(squares, 1 - memory**steps))
    torch._foreach_add_(roots, SMALL)
    torch._foreach_reciprocal_(roots)
    for root, scale in zip(roots, scales, strict=True):
        root.mul_(scale.to(root.dtype))
    return list(roots)


def relative_length(direction: Sequence[Tensor], scales: Tensor) -> Tensor:
    """Return the root mean square of a direction, each tensor relative to its weights."""
    count = sum(part.numel() for part in direction)
    return (squared_lengths(direction) / scales.square()).sum().div(count).sqrt()


def add(to: Sequence[Tensor], direction: Sequence[Tensor], by: Tensor) -> None:
    """Add a multiple of a direction, in place. The factor stays on the device."""
    for mine, part in zip(to, direction, strict=True):
        mine.addcmul_(part, by.to(part.dtype))
