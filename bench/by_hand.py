"""The two-stage method by hand: the yardstick of `bench.overhead`, in plain torch without a line of unweave.

It is what one would write for one model and one data set in memory, with the paper at hand and speed in mind: batches
are indexing operations, batches of a step share a forward pass, reference losses are computed once, and no value is
read before the end. It computes what the method computes, from the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Data = tuple[Tensor, Tensor] | Mapping[str, Tensor]
Logged = list[dict[str, Tensor]]
IN_ORDER = 256  # samples of a pass without gradient


@dataclass(frozen=True, kw_only=True)
class Stage1:
    """The input of stage 1: for each step the rows of its remote and forget batch; all remote rows; settings."""

    steps: Sequence[tuple[Tensor, Tensor]]
    remote: Tensor
    learning_rate: float
    penalty: float
    clip: float


@dataclass(frozen=True, kw_only=True)
class Stage2:
    """The input of stage 2: for each step the rows of its batches of each subset; all forget rows; settings."""

    steps: Sequence[tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]]
    forget: Tensor
    learning_rate: float
    momentum: float
    alpha: float
    mean_sign: float
    most: int  # samples that share a forward pass


def stage1(model: nn.Module, data: Data, given: Stage1) -> Logged:
    """Raise the clipped forget loss, and pin the remote loss by an augmented Lagrangian (Eq. 1-4)."""
    model.eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=given.learning_rate)
    pinned = in_order(model, data, given.remote).mean()
    multiplier = torch.zeros(())
    logged: Logged = []
    for remote_rows, forget_rows in given.steps:
        losses = losses_of(model, data, torch.cat([remote_rows, forget_rows]))
        remote_losses, forget_losses = losses.split([len(remote_rows), len(forget_rows)])
        remote_loss = remote_losses.mean()
        gap = remote_loss - pinned
        forget_loss = forget_losses.clamp(max=given.clip).mean()
        objective = -forget_loss + multiplier * gap + given.penalty / 2 * gap.square()
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        multiplier = multiplier + given.penalty * gap.detach()
        logged.append(
            {
                "forget_loss": forget_losses.detach().mean(),
                "remote_loss": remote_loss.detach(),
                "multiplier": multiplier,
            }
        )
    return logged


def stage2(model: nn.Module, data: Data, given: Stage2) -> Logged:
    """Descend on the adjacent loss, orthogonally to the forget and the remote gradient (Eq. 8-10)."""
    model.eval()
    parameters = list(model.parameters())
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    reference = torch.empty(int(given.forget.max()) + 1)
    reference[given.forget] = in_order(model, data, given.forget)
    logged: Logged = []
    for adjacent_batches, forget_batches, remote_batches in given.steps:
        row: dict[str, list[Tensor]] = {
            "adjacent_loss": [],
            "forget_loss": [],
            "squared_wasserstein": [],
            "remote_loss": [],
        }
        direction = _descend_on(model, data, adjacent_batches, given.most, row["adjacent_loss"])
        torch._foreach_add_(direction, velocity, alpha=given.momentum)

        for parameter in parameters:
            parameter.grad = None
        for group in passes(forget_batches, given.most):
            objective = torch.zeros(())
            for rows, losses in zip(group, _together(model, data, group), strict=True):
                distance = (losses.sort().values - reference[rows].sort().values).square().mean()
                mean = losses.mean()
                objective = objective + given.mean_sign * (1 - given.alpha) * mean + given.alpha * distance
                row["forget_loss"].append(mean.detach())
                row["squared_wasserstein"].append(distance.detach())
            objective.backward()
        forget = [parameter.grad for parameter in parameters]

        remote = _descend_on(model, data, remote_batches, given.most, row["remote_loss"])
        velocity = project(direction, forget, remote)
        with torch.no_grad():
            torch._foreach_add_(parameters, velocity, alpha=-given.learning_rate)
        logged.append({name: torch.stack(values).mean() for name, values in row.items()})
    return logged


def _descend_on(
    model: nn.Module, data: Data, batches: Sequence[Tensor], most: int, means: list[Tensor]
) -> list[Tensor]:
    """Return the gradient of the sum of the batches' mean losses, and append these to ``means``."""
    for parameter in model.parameters():
        parameter.grad = None
    for group in passes(batches, most):
        each = [losses.mean() for losses in _together(model, data, group)]
        means += [mean.detach() for mean in each]
        torch.stack(each).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@torch.no_grad()
def project(direction: list[Tensor], *basis: list[Tensor]) -> list[Tensor]:
    """Remove the span of some gradients from a direction, with dot products in float64 (Eq. 10)."""
    every = torch.stack([torch.cat([part.reshape(-1) for part in one]) for one in (direction, *basis)]).double()
    products = every @ every.T
    weights = torch.linalg.solve(products[1:, 1:], products[1:, 0]).float()
    for gradient, weight in zip(basis, -weights, strict=True):
        for part, other in zip(direction, gradient, strict=True):
            part.addcmul_(other, weight)
    return direction


def passes(batches: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield the batches that share a forward pass: at most this many samples together, or one batch."""
    group: list[Tensor] = []
    for rows in batches:
        if group and sum(map(len, group)) + len(rows) > most:
            yield group
            group = []
        group.append(rows)
    yield group


def _together(model: nn.Module, data: Data, group: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the losses of several batches from one forward pass."""
    rows = torch.cat(list(group)) if len(group) > 1 else group[0]
    return losses_of(model, data, rows).split([len(one) for one in group])


@torch.no_grad()
def in_order(model: nn.Module, data: Data, rows: Tensor) -> Tensor:
    """Return the losses of many samples, in the order of their rows."""
    return torch.cat([losses_of(model, data, some) for some in rows.split(IN_ORDER)])


def losses_of(model: nn.Module, data: Data, rows: Tensor) -> Tensor:
    """Return the cross-entropy of the samples in these rows."""
    output: Any
    if isinstance(data, Mapping):
        output = model(**{name: column[rows] for name, column in data.items() if name != "labels"})
        labels = data["labels"]
    else:
        output, labels = model(data[0][rows]), data[1]
    return functional.cross_entropy(output, labels[rows], reduction="none")
