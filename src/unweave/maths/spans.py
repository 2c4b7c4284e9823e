"""Gradients as lists of tensors: dot products, weighted sums, and removing the span of some gradients from another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from unweave.errors import UsageError, as_number
from unweave.maths.inputs import require_gradient, require_gradients
from unweave.runtime import exchange, is_cut, local

Gradient: TypeAlias = "list[Tensor]"  # one tensor per trainable parameter, in the parameter's shape

# Two directions whose angle has a squared sine below this count as one. Their difference is rounding noise.
PARALLEL = 1e-10
# Numbers of a gradient converted to float64 at a time: 32 MiB per gradient on a device, what fits a cache on a CPU.
CHUNK = {"cpu": 1 << 18}
DEVICE_CHUNK = 1 << 22


@torch.no_grad()
def remove_span(
    direction: Sequence[Tensor], basis: Sequence[Sequence[Tensor]], *, ridge: float = 0.0, in_place: bool = False
) -> Gradient:
    """Return the part of ``direction`` orthogonal to every gradient in ``basis`` (Eq. 10).

    d = u − Σ kᵢ gᵢ with G k = b, G = ⟨gᵢ, gⱼ⟩, b = ⟨u, gᵢ⟩. The products are summed in float64. G is scaled to unit
    diagonal, and a basis gradient in the span of those before it gets no weight. So basis gradients may be zero or
    parallel, and the result does not depend on their lengths. The computation never waits for the device.

    Args:
        direction: The gradient u, one tensor per parameter.
        basis: The gradients gᵢ, each with the shapes of ``direction``. They may be sharded among processes.
        ridge: If above 0, solve (G + ridge·I) k = b instead, as the authors' released code does. Then
            ⟨d, gᵢ⟩ = ridge·kᵢ.
        in_place: Overwrite the tensors of ``direction``, which saves the memory of one gradient.

    Returns:
        The gradient d, one tensor per parameter.

    Raises:
        UsageError: A basis gradient has other shapes than the direction.

    Example:
        >>> u, g = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])], [torch.tensor([0.0, 1.0]), torch.tensor([0.0])]
        >>> remove_span(u, [g, g])  # the basis has the same gradient twice
        [tensor([1., 0.]), tensor([3.])]
    """
    require_gradient("direction", direction)
    require_gradients("basis", basis)
    ridge = as_number("ridge", ridge)
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
    """Solve a positive semidefinite system with unit or zero diagonal by Cholesky's L Lᵀ, without reading values.

    The pivot of a row is the squared sine of its angle with the span of the rows before it. A row whose pivot is below
    `PARALLEL` gets the weight 0.
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
    """Return the matrix of all dot products of some gradients, in float64.

    Args:
        gradients: Gradients of one model, each with one tensor per parameter. Products of sharded gradients are summed
            over the processes.

    Returns:
        A symmetric matrix of shape (gradients, gradients).

    Example:
        >>> gram_matrix([[torch.tensor([3.0, 4.0])], [torch.tensor([1.0, 0.0])]])
        tensor([[25.,  3.],
                [ 3.,  1.]], dtype=torch.float64)
    """
    count = len(require_gradients("gradients", gradients))
    if not count or not gradients[0]:
        raise UsageError("There are no gradients, or they have no parameters.")
    products = []
    here = [[local(part) for part in gradient] for gradient in gradients]
    for pieces in _chunks([_flat(parts) for parts in zip(*here, strict=True)]):
        vectors = [torch.cat(of_gradient).double() for of_gradient in zip(*pieces, strict=True)]
        dots = [[torch.dot(vectors[i], vectors[j]) for j in range(i + 1)] for i in range(count)]
        products.append(torch.stack([dots[max(i, j)][min(i, j)] for i in range(count) for j in range(count)]))
    found = torch.stack(products).sum(dim=0).view(count, count)
    return exchange.summed(found) if any(map(is_cut, gradients[0])) else found


@torch.no_grad()
def squared_lengths(gradient: Sequence[Tensor]) -> Tensor:
    """Return the squared length of each tensor of a gradient, in float64. Sharded ones are summed over the processes.

    >>> squared_lengths([torch.tensor([3.0, 4.0]), torch.tensor([2.0])])
    tensor([25.,  4.], dtype=torch.float64)
    """
    found = torch.stack([local(part).double().square().sum() for part in gradient])
    return exchange.summed(found) if any(map(is_cut, gradient)) else found


def _flat(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of one parameter as vectors, with their entries in one order whatever their layouts."""
    if all(_is_channels_last(part) for part in parts):
        return [part.permute(0, 2, 3, 1).reshape(-1) for part in parts]
    return [part.reshape(-1) for part in parts]


def _is_channels_last(part: Tensor) -> bool:
    return part.ndim == 4 and not part.is_contiguous() and part.is_contiguous(memory_format=torch.channels_last)


def _chunks(flat: Sequence[Sequence[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Yield chunks of parameters: small parameters together, large ones in slices."""
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
    """Return the weighted sum Σ wᵢ gᵢ in the gradients' own precision.

    Args:
        gradients: The gradients gᵢ, at least one.
        weights: One weight per gradient.

    Returns:
        A new gradient, one tensor per parameter.

    Example:
        >>> combine([[torch.tensor([1.0, 2.0])], [torch.tensor([10.0, 0.0])]], torch.tensor([1.0, 0.5]))
        [tensor([6., 2.])]
    """
    total = [part * weights[0].to(part.dtype) for part in gradients[0]]
    for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
        _add_scaled(total, gradient, weight)
    return total


def _add_scaled(total: Gradient, gradient: Sequence[Tensor], weight: Tensor) -> None:
    """Add a multiple of a gradient in place. The weight stays on the device; torch's ``foreach`` needs a number."""
    scaled = {part.dtype: weight.to(part.dtype) for part in total}
    for part, addend in zip(total, gradient, strict=True):
        local(part).addcmul_(local(addend), scaled[part.dtype])
