"""Where samples wait until a batch needs them: on the device if they fit, else read ahead by worker processes."""

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
Order: TypeAlias = "tuple[Tensor, int | None]"  # positions of a batch; the seed of its random transforms, if it has any

MOST_WORKERS = 4  # for each stream of batches, of which a phase has up to three
CHUNK = 1024  # samples read at a time onto a shelf


class Shelf:
    """Samples kept on a device under their positions, as they are stored: bytes stay bytes."""

    def __init__(self, read: Read, count: int, device: torch.device, *, whole: Any = None, workers: int = 0) -> None:
        self.read, self.count, self.device, self.workers = read, count, device, workers
        self.there = torch.zeros(count, dtype=torch.bool)  # on the host, like the decision what to read
        self.data: Any = None
        self.lengths: Tensor | None = token_lengths(whole)  # on the host too: a batch is cut without asking the device
        if whole is not None:  # already tensors: move them as they are
            self.data = to_device(whole, device)
            self.there = _are_finite(self.data, count).cpu()  # others are read, and refused, if they are asked for

    def add(self, rows: Tensor) -> bool:
        """Read what is not here yet; tell whether samples have one shape, so that they can be kept."""
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
        """Tell whether the samples at these positions, given on the host, are all here."""
        return bool(self.there[rows].all())

    def take(self, rows: Tensor, longest: int | None = None) -> Any:
        """Return the samples at these positions, which must be on the device; padding beyond ``longest`` is cut."""
        kept = self.data if longest is None else trimmed(self.data, longest)
        return map_tensors(lambda tensor: tensor[rows], kept)

    def _room(self, sample: Tensor) -> Tensor:
        return sample.new_zeros((self.count, *sample.shape[1:]), device=self.device)


class _BatchReader(Dataset[Any]):
    """Reads one batch for an order. The same order gives the same batch in any process."""

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
    """Orders as a sampler: without a length, for they may be endless."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self.orders = orders

    def __iter__(self) -> Iterator[Order]:
        return iter(self.orders)


def stream(read: Read, orders: Iterable[Order], workers: int, pinned: bool) -> Iterator[Any]:
    """Yield a batch for each order; ``workers`` processes read ahead, in pinned memory if the device is a GPU."""
    if workers == 0:
        reader = _BatchReader(read)
        return (reader[order] for order in orders)
    loader: DataLoader[Any] = DataLoader(
        _BatchReader(read),
        batch_size=None,
        sampler=_Orders(orders),
        num_workers=workers,
        pin_memory=pinned,
        generator=torch.Generator(),  # or a seed for the processes would be drawn from the caller's
    )
    return iter(loader)


class Ahead:
    """Batches by number, read ahead as long as they are asked for one after the other.

    With a ``period``, the orders repeat themselves after so many: what follows the last is the first again.

    Nothing that is given to it may refer to it: its processes end in good order when the last reference is gone, but
    take long to end when the garbage collector finds them.
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
    """Return how many processes should read a data set: some beside a GPU, none where the CPU computes itself."""
    if device.type != "cuda" or not _travels((dataset, collate)):
        return 0
    return min(MOST_WORKERS, (os.cpu_count() or 1) - 1)


def _travels(given: Any) -> bool:
    """Tell whether something can be given to another process, however that is started."""
    if torch.multiprocessing.get_start_method() == "fork":
        return True
    try:
        pickle.dumps(given)
    except Exception:  # whatever a data set's own pickling raises
        return False
    return True


def _types(data: Any) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors_of(data)]


def _are_finite(data: Any, count: int) -> Tensor:
    """Tell of each sample whether all of its numbers are finite."""
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
            "Repair or leave them out before unlearning."
        )
