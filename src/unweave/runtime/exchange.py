"""Tensors that the processes of one run exchange: results of samples, gradients and weights.

In a single process every function returns its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from unweave.runtime import processes
from unweave.runtime.processes import Part

BUCKET = 25 << 20  # bytes of gradients that are sent together


def gathered(mine: Tensor, part: Part | None) -> Tensor:
    """Return the results of all processes in the order of the batch, given the results of this process.

    The gradient flows to the results of this process only, multiplied by the number of processes, because gradients
    are averaged afterwards.
    """
    if part is None:
        return mine
    found: Tensor = _Gathered.apply(mine, part)  # type: ignore[no-untyped-call]
    return found


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, part: Part) -> Tensor:
        ctx.part = part
        every = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(part.of)]
        with processes.heard():
            dist.all_gather(every, mine.contiguous(), group=processes.group_of(mine))
        return torch.cat(every)[: part.total]

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        part: Part = ctx.part
        mine = weights.new_zeros((part.size, *weights.shape[1:]))
        first = part.number * part.size
        mine[: part.real] = weights[first : first + part.real] * part.of
        return mine, None


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> None:
    """Replace tensors with their mean over the processes, in place."""
    if processes.count() == 1:
        return
    waiting = []
    with processes.heard():
        for bucket in _buckets(tensors):
            flat = bucket[0].view(-1) if _is_flat(bucket) else torch.cat([tensor.reshape(-1) for tensor in bucket])
            waiting.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        for bucket, flat, work in waiting:
            work.wait()
            flat.div_(processes.count())
            if not _is_flat(bucket):
                parts = flat.split([tensor.numel() for tensor in bucket])
                for tensor, part in zip(bucket, parts, strict=True):
                    tensor.copy_(part.view(tensor.shape))


def summed(tensor: Tensor) -> Tensor:
    """Return the sum over the processes. The gradient is summed over them too."""
    if processes.count() == 1:
        return tensor
    found: Tensor = _Summed.apply(tensor)  # type: ignore[no-untyped-call]
    return found


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.contiguous().clone()
        with processes.heard():
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Tensor:
        return summed(weights)


@torch.no_grad()
def spread(tensors: Sequence[Tensor]) -> None:
    """Copy the values of the first process to all others, in place."""
    if processes.count() == 1:
        return
    with processes.heard():
        for tensor in tensors:
            same = tensor.contiguous()
            dist.broadcast(same, src=0, group=processes.group_of(same))
            if same is not tensor:
                tensor.copy_(same)


def _is_flat(bucket: list[Tensor]) -> bool:
    return len(bucket) == 1 and bucket[0].is_contiguous()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of tensors of one type that are sent together."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(other.nbytes for other in bucket) + tensor.nbytes > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
