"""Shuffled batches that are a pure function of the seed and the step.

Batches keep no state between steps. A resumed run therefore draws the same batches as an uninterrupted one, and
several processes agree on a batch without communicating; each reads its own part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import torch
from torch import Tensor

from unweave.data import Ahead, Batch, Check, Order, Samples, to_device
from unweave.errors import UsageError
from unweave.runtime import processes


def derive_seed(*parts: int | str) -> int:
    """Return a seed that depends on every part, the same on every machine.

    >>> derive_seed(0, "stage 1", 7) == derive_seed(0, "stage 1", 7) != derive_seed(0, "stage 1", 8)
    True
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63


class Batches:
    """The samples of a subset in shuffled batches: an endless stream, reshuffled on every pass.

    Batch normalisation cannot learn from one sample. If one sample would be left for the last batch of a pass, that
    batch takes another from the batch before it, unless batches have two samples only.

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
        check: Check | None = None,
        cut: bool = False,
    ) -> None:
        if size < 1:
            raise UsageError(f"The batch size is {size}, but must be at least 1.")
        self.samples, self.size, self.seed = samples, size, seed
        self.device, self.check, self.cut = device, check, cut
        self.rows = rows.to(device)
        self._kept = samples.kept(device)
        # Positions are kept where the samples are read, so that indexing never waits for the other side.
        lengths = samples.token_lengths(device) if cut else None
        self._plan = _Plan(
            self.rows if self._kept else rows.cpu(),
            size,
            seed,
            varies=not self._kept and samples.varies(rows),
            lengths=None if lengths is None else lengths[rows.cpu()],
        )
        read = partial(samples.batches, device=device, check=check, cut=cut)
        self._ahead = {
            "shuffled": Ahead(partial(self._plan.order, "shuffled"), read),
            "in order": Ahead(partial(self._plan.order, "in order"), read, period=len(self)),
        }

    def __len__(self) -> int:
        """Return the number of batches in one pass; the last may be short."""
        return math.ceil(len(self.rows) / self.size)

    def __getitem__(self, number: int) -> Batch:
        """Return batch ``number`` of the endless stream."""
        return self._batch("shuffled", number)

    def several(self, step: int, count: int) -> Iterator[Batch]:
        """Yield the batches of a step that takes ``count`` of them, but never more than one pass."""
        count = min(count, len(self))
        for place in range(count):
            yield self[step * count + place]

    def unshuffled(self, number: int) -> Batch:
        """Return batch ``number`` of a pass in the order of the rows."""
        return self._batch("in order", number)

    def in_batches_of(self, size: int) -> Batches:
        """Return the same samples in batches of ``size``, or of the present size if that is larger."""
        return self._like(self.rows, size=max(size, self.size))

    @property
    def are_at_hand(self) -> bool:
        """Whether the samples are kept on the device, unchanged, so that they can be read in any order."""
        return self._kept

    def only(self, chosen: Tensor) -> Batches:
        """Return the samples that a mask of the rows selects, in batches of the same size."""
        return self._like(self.rows[chosen], size=self.size)

    def of_rows(self, rows: Tensor) -> Batches:
        """Return batches of the same size over other samples, read in the order of ``rows``."""
        return self._like(rows, size=self.size)

    def _like(self, rows: Tensor, *, size: int) -> Batches:
        return Batches(
            self.samples, rows, size=size, seed=self.seed, device=self.device, check=self.check, cut=self.cut
        )

    def in_order(self) -> Iterator[Batch]:
        """Yield every sample once, unshuffled."""
        for number in range(len(self)):
            yield self.unshuffled(number)

    def _batch(self, way: str, number: int) -> Batch:
        rows = self._plan.positions(way, number)
        part = processes.part_of(len(rows))
        if self._kept:
            longest = self._plan.longest(way, number)
            mine = self.samples.batch(part.rows(rows) if part else rows, self.device, longest=longest, known=True)
        else:
            mine = self._ahead[way][number]
        return mine if part is None else Batch(rows=to_device(rows, self.device), data=mine.data, part=part)


def grouped(batches: Iterable[Batch], *, most: int) -> Iterator[list[Batch]]:
    """Yield groups of batches with at most ``most`` samples in total; a larger batch is its own group.

    >>> some = [Batch(rows=torch.arange(size), data=()) for size in (3, 3, 2, 9)]
    >>> [[len(batch) for batch in group] for group in grouped(some, most=6)]
    [[3, 3], [2], [9]]
    """
    group: list[Batch] = []
    for batch in batches:
        if group and sum(map(len, group)) + len(batch) > most:
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


class _Plan:
    """Assigns samples to batches."""

    def __init__(self, rows: Tensor, size: int, seed: int, *, varies: bool, lengths: Tensor | None = None) -> None:
        self.rows, self.size, self.seed, self.varies, self.lengths = rows, size, seed, varies, lengths
        self.shuffled = lru_cache(maxsize=2)(self._shuffle)
        self.count = math.ceil(len(rows) / size)
        self.one_is_left = self.count > 1 and size > 2 and len(rows) % size == 1

    def positions(self, way: str, number: int) -> Tensor:
        """Return the positions of the samples of a batch."""
        turn, some = self._place(way, number)
        return self.shuffled(turn)[0][some] if way == "shuffled" else self.rows[some]

    def longest(self, way: str, number: int) -> int | None:
        """Return the number of tokens of a batch's longest sample, or None if samples have no tokens."""
        if self.lengths is None:
            return None
        turn, some = self._place(way, number)
        lengths = self.shuffled(turn)[1] if way == "shuffled" else self.lengths
        return int(lengths[some].max()) if lengths is not None else None

    def _place(self, way: str, number: int) -> tuple[int, slice]:
        turn, place = divmod(number, self.count)
        start, end = place * self.size, (place + 1) * self.size
        if way == "shuffled" and self.one_is_left:
            start, end = start - (place == self.count - 1), end - (place == self.count - 2)
        return turn, slice(start, end)

    def order(self, way: str, number: int) -> Order:
        """Return the positions that this process reads and, if transforms are random, their seed.

        All passes in order are the same.
        """
        if way == "in order":
            number %= self.count
        rows = self.positions(way, number)
        part = processes.part_of(len(rows))
        if part is None:
            return rows, derive_seed(self.seed, way, number) if self.varies else None
        return part.rows(rows), derive_seed(self.seed, way, number, part.number) if self.varies else None

    def _shuffle(self, turn: int) -> tuple[Tensor, Tensor | None]:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, turn))
        order = torch.randperm(len(self.rows), generator=generator)
        lengths = None if self.lengths is None else self.lengths[order]
        return self.rows[to_device(order, self.rows.device)], lengths
