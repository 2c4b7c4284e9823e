"""Which retained samples a method treats as adjacent.

- ``classes``: the adjacent samples of the benchmark
- ``neighbours``: neighbours in the original model's features, by the paper's rule (k = 20, a tenth of retained data)
- ``remote-to-adjacent:0.2``: as ``classes``, but a random fifth of the remote samples becomes adjacent
- ``adjacent-to-remote:0.2``: as ``classes``, but a random fifth of the adjacent samples becomes remote
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from unweave.api import Split
from unweave.engine import derive_seed
from unweave.errors import UsageError, unknown
from unweave.evaluation import features

CLASSES, NEIGHBOURS = "classes", "neighbours"
NOISE = ("remote-to-adjacent", "adjacent-to-remote")


def check_adjacency(kind: str) -> None:
    """Raise an error for an unknown adjacency, or a share that is not between 0 and 1.

    >>> check_adjacency("remote-to-adjacent:2")
    Traceback (most recent call last):
    unweave.errors.UsageError: The share of samples to misplace in 'remote-to-adjacent:2' must be between 0 and 1.
    """
    name, _, share = kind.partition(":")
    if name not in (CLASSES, NEIGHBOURS, *NOISE) or (share and name not in NOISE):
        raise unknown("adjacency", kind, (CLASSES, NEIGHBOURS, *(f"{word}:SHARE" for word in NOISE)))
    if name in NOISE:
        try:
            fits = 0 < float(share) < 1
        except ValueError:
            fits = False
        if not fits:
            raise UsageError(f"The share of samples to misplace in {kind!r} must be between 0 and 1.")


def regroup(
    split: Split,
    kind: str,
    *,
    original: Callable[[], nn.Module],
    seed: int,
    device: str | torch.device | None = None,
) -> Split:
    """Return the split that the method gets, over the same samples."""
    check_adjacency(kind)
    if kind == CLASSES:
        return split
    if kind == NEIGHBOURS:
        found = features(original(), split.samples, torch.arange(len(split.samples)), device=device)
        near = Split.by_neighbours(split.samples.dataset, forget=split.forget, features=found, rule="fixed")
        return Split(split.samples, near.forget, near.adjacent, near.remote)
    name, _, share = kind.partition(":")
    return split.with_noise(**{name.replace("-", "_"): float(share)}, seed=derive_seed(seed, "adjacency"))
