"""Gradients as lists of tensors: dot products, and removing a span from a direction.

>>> remove_span([torch.tensor([1.0, 1.0])], basis=[[torch.tensor([2.0, 0.0])]])
[tensor([0., 1.])]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from unweave.errors import UsageError

Gradient: TypeAlias = "list[Tensor]"  # one tensor per trainable parameter, in the parameter's shape

# Two directions whose squared sine is below this are one direction: their difference is rounding noise.
PARALLEL = 1e-10


def remove_span(direction: Sequence[Tensor], basis: Sequence[Sequence[Tensor]], *, ridge: float = 0.0) -> Gradient:
    """Return the part of ``direction`` orthogonal to every gradient in ``basis`` (Eq. 10).

    d = u − Σ kᵢ gᵢ with G k = b, G = ⟨gᵢ, gⱼ⟩, b = ⟨u, gᵢ⟩, the products summed in float64. Zero or parallel
    basis gradients are no obstacle: G is scaled to unit diagonal and pseudo-inverted, so the result does not
    depend on the lengths of the basis gradients. ``ridge`` instead solves (G + ridge·I) k = b, as the authors'
    released code does; then ⟨d, gᵢ⟩ = ridge·kᵢ.

    >>> u, g = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])], [torch.tensor([0.0, 1.0]), torch.tensor([0.0])]
    >>> remove_span(u, [g, g])  # a basis of two equal gradients
    [tensor([1., 0.]), tensor([3.])]
    """
    for gradient in basis:
        if [part.shape for part in gradient] != [part.shape for part in direction]:
            raise UsageError("Every gradient of the basis must have the shapes of the direction.")
    if not basis:
        return list(direction)
    products = gram_matrix([direction, *basis])
    dots, gram = products[0, 1:], products[1:, 1:]
    if ridge > 0:
        weights = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), dots)
    else:
        lengths = gram.diagonal().sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0)
        correlation = gram * scale[:, None] * scale[None, :]
        weights = torch.linalg.pinv(correlation, rtol=PARALLEL, hermitian=True) @ (dots * scale) * scale
    return combine([direction, *basis], torch.cat([weights.new_ones(1), -weights]))


def gram_matrix(gradients: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the matrix of dot products, in float64.

    >>> gram_matrix([[torch.tensor([3.0, 4.0])], [torch.tensor([1.0, 0.0])]])
    tensor([[25.,  3.],
            [ 3.,  1.]], dtype=torch.float64)
    """
    total = torch.zeros(len(gradients), len(gradients), dtype=torch.float64, device=gradients[0][0].device)
    for parts in zip(*gradients, strict=True):
        # A parameter at a time, so that the float64 copy is small; reshape, not view: layouts may differ.
        rows = torch.stack([part.detach().reshape(-1) for part in parts]).double()
        total += rows @ rows.T
    return total


def combine(gradients: Sequence[Sequence[Tensor]], weights: Tensor) -> Gradient:
    """Return Σ wᵢ gᵢ in the gradients' own precision.

    >>> combine([[torch.tensor([1.0, 2.0])], [torch.tensor([10.0, 0.0])]], torch.tensor([1.0, 0.5]))
    [tensor([6., 2.])]
    """
    result = []
    for parts in zip(*gradients, strict=True):
        scaled = weights.to(parts[0].dtype)
        total = parts[0] * scaled[0]
        for part, weight in zip(parts[1:], scaled[1:], strict=True):
            total = torch.addcmul(total, part, weight)
        result.append(total)
    return result
