"""Random labels for forget data. SalUn and MUNBa share them."""

from __future__ import annotations

import torch
from torch import Tensor

from unweave.engine import derive_seed


def chance(*shape: int, seed: int, turn: int, device: torch.device) -> Tensor:
    """Return uniform numbers in [0, 1), the same for the same seed and turn on every device."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "random labels", turn))
    return torch.rand(shape, generator=generator).to(device)


def random_labels(true: Tensor, drawn: Tensor, *, classes: int, exclude_true: bool = False) -> Tensor:
    """Turn uniform numbers into uniformly random labels.

    >>> random_labels(torch.tensor([0, 2]), torch.tensor([0.1, 0.9]), classes=3)
    tensor([0, 2])
    >>> random_labels(torch.tensor([0, 2]), torch.tensor([0.1, 0.9]), classes=3, exclude_true=True)
    tensor([1, 1])
    """
    if not exclude_true:
        return (drawn * classes).long()
    return (true + 1 + (drawn * (classes - 1)).long()) % classes
