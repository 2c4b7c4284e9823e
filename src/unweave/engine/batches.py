"""Shuffled batches that are a pure function of the seed and the step.

Nothing is remembered between steps, so a resumed run draws exactly what it would have drawn, and several
processes agree on a batch without talking.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from unweave.data import Batch, Samples
from unweave.errors import UsageError
from unweave.loading import Ahead, Order


def derive_seed(*parts: int | str) -> int:
    """Return a seed that depends on every part, the same on every machine.

    >>> derive_seed(0, "stage 1", 7) == derive_seed(0, "stage 1", 7) != derive_seed(0, "stage 1", 8)
    True
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63


class Batches:
    """The samples of a subset in shuffled batches: an endless stream, reshuffled on every pass.

    >>> samples = Samples((torch.arange(5.0)[:, None], torch.zeros(5, dtype=torch.long)))
    >>> batches = Batches(samples, torch.arange(5), size=2, seed=0, device=torch.device("cpu"))
    >>> len(batches), [len(batches[step]) for step in range(4)]
    (3, [2, 2, 1, 2])
    """

    def __init__(
        self,
        samples: Samples,
        rows: Tensor,
        *,
        size: int,
        seed: int,
        device: torch.device,
        classes: int | None = None,
    ) -> None:
        if size < 1:
            raise UsageError(f"The batch size is {size}, but must be at least 1.")
        self.samples, self.size, self.seed = samples, size, seed
        self.device, self.classes = device, classes
        self.rows = rows.to(device)
        # Positions stand where samples are read: data on the device is found without asking the host, and vice versa.
        self._kept = samples.kept(device)
        self._rows = self.rows if self._kept else rows.cpu()
        self._varies = not self._kept and samples.varies(rows)
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)
        self._ahead = Ahead(lambda number: self._order("shuffled", number), self._read)
        self._in_order = Ahead(lambda number: self._order("in order", number), self._read)

    def __len__(self) -> int:
        """Return the number of batches in one pass; the last may be short."""
        return math.ceil(len(self.rows) / self.size)

    def __getitem__(self, number: int) -> Batch:
        """Return batch ``number`` of the endless stream."""
        if self._kept:
            return self.samples.batch(self._positions("shuffled", number), self.device)
        found: Batch = self._ahead[number]
        return found

    def several(self, step: int, count: int) -> Iterator[Batch]:
        """Yield the batches of a step that takes ``count`` of them, but never more than one pass."""
        count = min(count, len(self))
        for place in range(count):
            yield self[step * count + place]

    def unshuffled(self, number: int) -> Batch:
        """Return batch ``number`` of a pass in the order of the rows."""
        if self._kept:
            return self.samples.batch(self._positions("in order", number), self.device)
        found: Batch = self._in_order[number]
        return found

    def in_order(self) -> Iterator[Batch]:
        """Yield every sample once, unshuffled."""
        for number in range(len(self)):
            yield self.unshuffled(number)

    def _positions(self, way: str, number: int) -> Tensor:
        turn, place = divmod(number, len(self))
        rows = self._shuffled(turn) if way == "shuffled" else self._rows
        return rows[place * self.size : (place + 1) * self.size]

    def _order(self, way: str, number: int) -> Order:
        return self._positions(way, number), derive_seed(self.seed, way, number) if self._varies else None

    def _read(self, orders: Iterable[Order]) -> Iterator[Batch]:
        return self.samples.batches(orders, self.device, classes=self.classes)

    def _shuffle(self, turn: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, turn))
        order = torch.randperm(len(self._rows), generator=generator)
        if self._rows.device.type == "cuda":
            order = order.pin_memory().to(self._rows.device, non_blocking=True)
        return self._rows[order.to(self._rows.device)]
