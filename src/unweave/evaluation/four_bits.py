"""Does forgotten knowledge return when weights are rounded to 4 bits?

Zhang et al., "Catastrophic Failure of LLM Unlearning via Quantization" (ICLR 2025): small changes of weights vanish in
rounding, and what was forgotten comes back. Here each block of 64 weights of a matrix is rounded to 16 evenly spaced
values between its minimum and its maximum. The embedding and the head are left as they are, as is usual.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from unweave.errors import UsageError

BLOCK = 64
BITS = 4


def rounded_weights(model: nn.Module, *, bits: int = BITS, block: int = BLOCK) -> nn.Module:
    """Return a copy of a model whose matrices are rounded.

    Args:
        model: The model. It is not changed.
        bits: Bits of a weight.
        block: Weights that share a range.

    Returns:
        The copy, in the precision of the original.

    Raises:
        UsageError: Bits or block are below 1.

    >>> model = rounded_weights(nn.Sequential(nn.Linear(64, 2), nn.Linear(2, 2)))
    >>> model[0].weight[0].unique().numel() <= 16
    True
    """
    if min(bits, block) < 1:
        raise UsageError(f"bits is {bits} and block is {block}, but both must be at least 1.")
    found = copy.deepcopy(model)
    find = getattr(found, "get_output_embeddings", None)
    head = find() if find is not None else None
    with torch.no_grad():
        for module in found.modules():
            weight = getattr(module, "weight", None)
            if module is head or isinstance(module, nn.Embedding) or not isinstance(weight, Tensor):
                continue
            if weight.ndim == 2 and weight.is_floating_point():
                weight.copy_(rounded(weight, bits=bits, block=block))
    return found


def rounded(weight: Tensor, *, bits: int, block: int) -> Tensor:
    """Return a matrix with every block of its rows rounded to 2^bits values.

    >>> rounded(torch.tensor([[0.0, 0.4, 0.6, 1.0]]), bits=1, block=4)
    tensor([[0., 0., 1., 1.]])
    """
    flat = weight.reshape(-1)
    short = -len(flat) % block
    blocks = torch.cat([flat, flat[-1:].expand(short)]).reshape(-1, block).float()
    low, high = blocks.amin(dim=1, keepdim=True), blocks.amax(dim=1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp(min=torch.finfo(torch.float32).tiny)
    values = low + ((blocks - low) / step).round() * step
    found: Tensor = values.reshape(-1)[: len(flat)].reshape(weight.shape).to(weight.dtype)
    return found
