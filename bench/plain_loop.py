"""The second yardstick: the plain loop that a competent user of PyTorch would write for the same method today.

It takes the steps of the released loop, without its detours and without anything of unweave:

- The data lies on the device. A batch is an indexing operation.
- Passes run in bfloat16 by autocast; the model is compiled by ``torch.compile``.
- The reference losses of stage 2 are computed once.
- Gradients are one vector; dot products and the 2×2 system stay on the device, in float64.

So the released loop against this one is the gain of ordinary engineering, and this one against ours is our own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Data = Mapping[str, tuple[Tensor, Tensor]]  # inputs and labels of every subset, on the device
RIDGE = 1e-8  # for every parameter tensor, as released


def losses_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every sample. On CUDA the pass runs in bfloat16."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=inputs.device.type == "cuda"):
        logits = model(inputs)
    return functional.cross_entropy(logits.float(), labels, reduction="none")


def endless(count: int, size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the positions of batches, shuffled anew on every pass."""
    while True:
        yield from torch.randperm(count, device=device).split(size)


def stage1(
    model: nn.Module,
    data: Data,
    *,
    steps: int,
    remote_batch: int,
    forget_batch: int,
    learning_rate: float,
    penalty: float = 10.0,
    clip: float = 10.0,
    pinned: float = 0.0,
    clock: Callable[[], None] = lambda: None,
) -> None:
    """Take steps of stage 1. ``clock`` is called before the first step and after each."""
    model.eval()
    device = data["forget"][1].device
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type == "cuda")
    multiplier = torch.zeros((), device=device)
    forget, remote = _batches(data["forget"], forget_batch), _batches(data["remote"], remote_batch)
    clock()
    for _ in range(steps):
        gap = losses_of(model, *next(remote)).mean() - pinned
        raised = losses_of(model, *next(forget)).clamp(max=clip).mean()
        optimizer.zero_grad()
        (-raised + multiplier * gap + penalty / 2 * gap**2).backward()
        optimizer.step()
        multiplier += penalty * gap.detach()
        clock()


def stage2(
    model: nn.Module,
    data: Data,
    *,
    steps: int,
    adjacent_batch: int,
    forget_batch: int,
    remote_batch: int,
    batch_limit: int,
    learning_rate: float,
    momentum: float = 0.9,
    alpha: float = 0.5,
    clock: Callable[[], None] = lambda: None,
) -> None:
    """Take steps of stage 2. ``clock`` is called before the first step and after each."""
    model.eval()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inputs, labels = data["forget"]
    with torch.no_grad():
        every = range(0, len(labels), forget_batch)
        parts = [
            losses_of(model, inputs[start : start + forget_batch], labels[start : start + forget_batch])
            for start in every
        ]
    before, velocity = torch.cat(parts), torch.zeros_like(_vector(parameters))
    adjacent, remote = _batches(data["adjacent"], adjacent_batch), _batches(data["remote"], remote_batch)
    clock()
    for _ in range(steps):
        goal = _gradient(losses_of(model, *next(adjacent)).mean(), parameters)
        order = torch.randperm(len(labels), device=labels.device).split(forget_batch)
        forget = torch.zeros_like(goal)
        for rows in order[:batch_limit]:
            now = losses_of(model, inputs[rows], labels[rows])
            apart = (now.sort().values - before[rows].sort().values).square().mean()
            forget += _gradient((alpha - 1) * now.mean() + alpha * apart, parameters)
        held = torch.zeros_like(goal)
        for batch in itertools.islice(remote, min(batch_limit, -(-len(data["remote"][1]) // remote_batch))):
            held += _gradient(losses_of(model, *batch).mean(), parameters)
        velocity = project(momentum * velocity + goal, forget, held, ridge=RIDGE * len(parameters))
        _move(parameters, velocity, -learning_rate)
        clock()


def project(direction: Tensor, first: Tensor, second: Tensor, *, ridge: float) -> Tensor:
    """Remove the span of two vectors from a direction."""
    span = torch.stack([first, second]).double()
    gram = span @ span.T + ridge * torch.eye(2, dtype=span.dtype, device=span.device)
    weights = torch.linalg.solve(gram, span @ direction.double())
    return direction - (weights @ span).to(direction.dtype)


def _batches(samples: tuple[Tensor, Tensor], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    inputs, labels = samples
    return ((inputs[rows], labels[rows]) for rows in endless(len(labels), size, labels.device))


def _vector(parts: Any) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


def _gradient(objective: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    return _vector(torch.autograd.grad(objective, parameters))


@torch.no_grad()
def _move(parameters: list[nn.Parameter], along: Tensor, by: float) -> None:
    for parameter, part in zip(parameters, along.split([p.numel() for p in parameters]), strict=True):
        parameter.add_(part.view_as(parameter), alpha=by)
