"""Optimisers by name."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

OptimizerName = Literal["sgd", "adam", "adamw"]


def make_optimizer(
    name: OptimizerName,
    parameters: list[nn.Parameter],
    *,
    learning_rate: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Return the optimiser with that name, in its fused form if all parameters are on CUDA."""
    fused = all(parameter.is_cuda for parameter in parameters)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, fused=fused)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(parameters, lr=learning_rate, weight_decay=weight_decay, fused=fused)
