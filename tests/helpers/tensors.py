"""Weights compared to the bit."""

from __future__ import annotations

import torch


def weights(model):
    """Every parameter and buffer as one list of copies."""
    return [tensor.detach().clone() for tensor in model.state_dict().values()]


def same(first, second):
    """Tell whether two lists of tensors are equal to the bit."""
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
