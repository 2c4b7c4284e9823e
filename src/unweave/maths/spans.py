"""Gradients as lists of tensors: dot products, and removing a span from a direction.

>>> remove_span([torch.tensor([1.0, 1.0])], basis=[[torch.tensor([2.0, 0.0])]])
[tensor([0., 1.])]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.runtime import exchange, is_cut, local

Gradient: TypeAlias = "list[Tensor]"  # one tensor per trainable parameter, in the parameter's shape

# Two directions whose squared sine is below this are one direction: their difference is rounding noise.
PARALLEL = 1e-10
# How many numbers of a gradient are in float64 at one time: 32 MiB a gradient on a device, what a cache holds on a CPU.
CHUNK = {"cpu": 1 << 18}
DEVICE_CHUNK = 1 << 22


@torch.no_grad()
def remove_span(
    direction: Sequence[Tensor], basis: Sequence[Sequence[Tensor]], *, ridge: float = 0.0, in_place: bool = False
) -> Gradient:
    """Return the part of ``direction`` orthogonal to every gradient in ``basis`` (Eq. 10).

    d = u − Σ kᵢ gᵢ with G k = b, G = ⟨gᵢ, gⱼ⟩, b = ⟨u, gᵢ⟩, the products summed in float64. Zero or parallel
    basis gradients are no obstacle: G is scaled to unit diagonal, and a gradient that lies in the span of those before
    it gets no weight, so the result does not depend on the lengths of the basis gradients. ``ridge`` instead solves
    (G + ridge·I) k = b, as the authors' released code does; then ⟨d, gᵢ⟩ = ridge·kᵢ. ``in_place`` overwrites
    ``direction`` and saves the memory of a gradient. Nothing waits for the device.

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
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        weights = torch.linalg.solve_ex(gram + ridge * identity, dots).result  # solve would wait for the device
    else:
        lengths = gram.diagonal().sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0)
        weights = _solve_semidefinite(gram * scale[:, None] * scale[None, :], dots * scale) * scale
    rest = list(direction) if in_place else [part.clone() for part in direction]
    for gradient, weight in zip(basis, -weights, strict=True):
        _add_scaled(rest, gradient, weight)
    return rest


def _solve_semidefinite(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve a positive semidefinite system with unit (or zero) diagonal by Cholesky's L Lᵀ, without reading a value.

    A row whose pivot, the squared sine of its angle with the span of the rows before it, is below `PARALLEL` gets 0.
    """
    count = len(right)
    lower, solved, inverse = torch.zeros_like(matrix), torch.zeros_like(right), torch.zeros_like(right)
    for i in range(count):
        rest = matrix[i:, i] - lower[i:, :i] @ lower[i, :i]
        inverse[i] = torch.where(rest[0] > PARALLEL, rest[0].clamp(min=PARALLEL).rsqrt(), 0)
        lower[i:, i] = rest * inverse[i]
        solved[i] = (right[i] - lower[i, :i] @ solved[:i]) * inverse[i]
    for i in reversed(range(count)):
        solved[i] = (solved[i] - lower[i + 1 :, i] @ solved[i + 1 :]) * inverse[i]
    return solved


@torch.no_grad()
def gram_matrix(gradients: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the matrix of dot products, in float64. Where gradients are cut among processes, it is that of the whole.

    >>> gram_matrix([[torch.tensor([3.0, 4.0])], [torch.tensor([1.0, 0.0])]])
    tensor([[25.,  3.],
            [ 3.,  1.]], dtype=torch.float64)
    """
    count = len(gradients)
    products = []
    here = [[local(part) for part in gradient] for gradient in gradients]
    for pieces in _chunks([_flat(parts) for parts in zip(*here, strict=True)]):
        vectors = [torch.cat(of_gradient).double() for of_gradient in zip(*pieces, strict=True)]
        dots = [[torch.dot(vectors[i], vectors[j]) for j in range(i + 1)] for i in range(count)]
        products.append(torch.stack([dots[max(i, j)][min(i, j)] for i in range(count) for j in range(count)]))
    found = torch.stack(products).sum(dim=0).view(count, count)
    return exchange.summed(found) if any(map(is_cut, gradients[0])) else found


def _flat(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of one parameter as vectors that list its entries in one order, whatever their layouts."""
    if all(_is_channels_last(part) for part in parts):
        return [part.permute(0, 2, 3, 1).reshape(-1) for part in parts]
    return [part.reshape(-1) for part in parts]


def _is_channels_last(part: Tensor) -> bool:
    return part.ndim == 4 and not part.is_contiguous() and part.is_contiguous(memory_format=torch.channels_last)


def _chunks(flat: Sequence[Sequence[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Group parameters into chunks: small ones together, large ones in slices."""
    most = CHUNK.get(flat[0][0].device.type, DEVICE_CHUNK)
    chunk: list[list[Tensor]] = []
    size = 0
    for parts in flat:
        length = len(parts[0])
        for slices in [parts] if length <= most else zip(*(part.split(most) for part in parts), strict=True):
            if chunk and size + len(slices[0]) > most:
                yield chunk
                chunk, size = [], 0
            chunk.append(list(slices))
            size += len(slices[0])
    yield chunk


@torch.no_grad()
def combine(gradients: Sequence[Sequence[Tensor]], weights: Tensor) -> Gradient:
    """Return Σ wᵢ gᵢ in the gradients' own precision.

    >>> combine([[torch.tensor([1.0, 2.0])], [torch.tensor([10.0, 0.0])]], torch.tensor([1.0, 0.5]))
    [tensor([6., 2.])]
    """
    total = [part * weights[0].to(part.dtype) for part in gradients[0]]
    for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
        _add_scaled(total, gradient, weight)
    return total


def _add_scaled(total: Gradient, gradient: Sequence[Tensor], weight: Tensor) -> None:
    """Add a multiple of a gradient in place. The weight stays on the device, so no scalar of foreach will do."""
    scaled = {part.dtype: weight.to(part.dtype) for part in total}
    for part, addend in zip(total, gradient, strict=True):
        local(part).addcmul_(local(addend), scaled[part.dtype])
