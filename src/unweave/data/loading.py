"""Samples for the next batches: kept on the device if they fit, otherwise read ahead by worker processes."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from unweave.data.padding import token_lengths, trimmed
from unweave.data.trees import map_tensors, shapes, tensors_of, to_device
from unweave.errors import UsageError
from unweave.runtime import own_random_numbers, seed_host

Read: TypeAlias = Callable[[Tensor], Any]
Order: TypeAlias = "tuple[Tensor, int | None]"  # the positions of a batch, and the seed of its transforms, if any

MOST_WORKERS = 4  # per stream of batches; a phase has up to three streams
CHUNK = 1024  # samples that a shelf reads at a time


class Shelf:
    """Samples kept on a device by position, in the type in which they are stored: bytes stay bytes."""

    def __init__(self, read: Read, count: int, device: torch.device, *, whole: Any = None, workers: int = 0) -> None:
        self.read, self.count, self.device, self.workers = read, count, device, workers
        self.there = torch.zeros(count, dtype=torch.bool)  # on the host, where it is decided what to read
        self.data: Any = None
        self.lengths: Tensor | None = token_lengths(whole)  # on the host too: trimming does not wait for the device
        if whole is not None:  # these are tensors already, so move them at once
            self.data = to_device(whole, device)
            self.there = _are_finite(self.data, count).cpu()  # the others raise an error when they are read

    def add(self, rows: Tensor) -> bool:
        """Read the samples that are missing. Return False if they cannot be kept, because shapes or types differ."""
        rows = rows.cpu()
        new = rows[~self.there[rows]]
        if len(new) == 0:
            return True
        chunks = new.split(CHUNK)
        read = stream(self.read, ((chunk, None) for chunk in chunks), self.workers, self.device.type == "cuda")
        for chunk, data in zip(chunks, read, strict=True):
            lengths = token_lengths(data)
            if self.data is None:
                self.data = map_tensors(self._room, data)
                self.lengths = None if lengths is None else torch.zeros(self.count, dtype=lengths.dtype)
            if shapes(data) != shapes(self.data) or _types(data) != _types(self.data):
                return False
            _require_finite(data, chunk)
            places = to_device(chunk, self.device)
            for kept, part in zip(tensors_of(self.data), tensors_of(data), strict=True):
                kept[places] = to_device(part, self.device)
            if self.lengths is not None and lengths is not None:
                self.lengths[chunk] = lengths
            self.there[chunk] = True
        return True

    def has(self, rows: Tensor) -> bool:
        """Tell whether all samples at these positions are here. The positions are on the host."""
        return bool(self.there[rows].all())

    def take(self, rows: Tensor, longest: int | None = None) -> Any:
        """Return the samples at these positions, which are on the device. Trim padding beyond ``longest``."""
        kept = self.data if longest is None else trimmed(self.data, longest)
        # index_select is up to three times as fast on a CPU; torch has none for unsigned numbers in one dimension.
        return map_tensors(lambda some: some.index_select(0, rows) if some.ndim > 1 else some[rows], kept)

    def _room(self, sample: Tensor) -> Tensor:
        return sample.new_zeros((self.count, *sample.shape[1:]), device=self.device)


class _BatchReader(Dataset[Any]):
    """Reads the batch of an order. The same order gives the same batch in every process."""

    def __init__(self, read: Read) -> None:
        self.read = read

    def __getitem__(self, order: Order) -> Any:
        rows, seed = order
        if seed is None:
            return self.read(rows)
        with own_random_numbers():
            seed_host(seed)
            return self.read(rows)


class _Orders(Sampler[Any]):
    """Orders as a sampler. It has no length, because orders may be endless."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self.orders = orders

    def __iter__(self) -> Iterator[Order]:
        return iter(self.orders)


def stream(read: Read, orders: Iterable[Order], workers: int, pinned: bool) -> Iterator[Any]:
    """Yield a batch for each order. ``workers`` processes read ahead, into pinned memory if ``pinned``."""
    if workers == 0:
        reader = _BatchReader(read)
        return (reader[order] for order in orders)
    loader: DataLoader[Any] = DataLoader(
        _BatchReader(read),
        batch_size=None,
        sampler=_Orders(orders),
        num_workers=workers,
        pin_memory=pinned,
        generator=torch.Generator(),  # otherwise the loader draws a seed from the caller's generator
    )
    return iter(loader)


class Ahead:
    """Batches by number, read ahead as long as they are requested in sequence.

    With a ``period``, the orders repeat after that many batches, so the first batch follows the last.

    The arguments must not refer back to this object. Without such a cycle its processes end as soon as the last
    reference to it is gone; in a cycle, the garbage collector takes long to end them.
    """

    def __init__(
        self,
        order: Callable[[int], Order],
        read: Callable[[Iterable[Order]], Iterator[Any]],
        *,
        period: int | None = None,
    ) -> None:
        self.order, self.read, self.period = order, read, period
        self._next = -1
        self._stream: Iterator[Any] = iter(())

    def __getitem__(self, number: int) -> Any:
        if number != self._next:
            self._stream = self.read(map(self.order, itertools.count(number)))
        self._next = number + 1 if self.period is None else (number + 1) % self.period
        return next(self._stream)


def worker_count(device: torch.device, dataset: Any, collate: Any) -> int:
    """Return how many processes read a data set: some for a GPU, none if the CPU computes itself."""
    if device.type != "cuda" or not _travels((dataset, collate)):
        return 0
    return min(MOST_WORKERS, (os.cpu_count() or 1) - 1)


def _travels(given: Any) -> bool:
    """Tell whether an object can be passed to a new process."""
    if torch.multiprocessing.get_start_method() == "fork":
        return True
    try:
        pickle.dumps(given)
    except Exception:  # the data set's own pickling may raise anything
        return False
    return True


def _types(data: Any) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors_of(data)]


def _are_finite(data: Any, count: int) -> Tensor:
    """Return for each sample whether all of its numbers are finite."""
    whole = [tensor for tensor in tensors_of(data) if tensor.is_floating_point()]
    fine = torch.ones(count, dtype=torch.bool, device=whole[0].device if whole else None)
    for tensor in whole:
        fine &= tensor.reshape(len(tensor), -1).isfinite().all(dim=1)
    return fine


def _require_finite(data: Any, rows: Tensor) -> None:
    bad = ~_are_finite(data, len(rows)).cpu()
    if bad.any():
        raise UsageError(
            f"{int(bad.sum())} samples hold NaN or infinite values (first: sample {int(rows[bad][0])}). "
            "Repair or remove them before unlearning."
        )
