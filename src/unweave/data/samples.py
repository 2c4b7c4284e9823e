"""Turn a user's data set into batches on a device.

A data set is a map-style torch data set, a Hugging Face data set, a pair of tensors (inputs, labels) or a
mapping of tensors with a ``"labels"`` entry. A batch is a pair ``(inputs, labels)`` or a mapping with
``"labels"``. All other code sees only `Samples`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import psutil
import torch
from torch import Tensor

from unweave.data.columns import Columns, as_dataset, label_column, stacked
from unweave.data.labels import Data, as_labels, labels_of, plain_labels, without_index
from unweave.data.loading import Order, Shelf, stream, worker_count
from unweave.data.padding import token_lengths, trimmed
from unweave.data.stored import Stored
from unweave.data.trees import byte_size, form_of, same, to_device
from unweave.errors import UsageError, short, unknown
from unweave.runtime import exchange, free_memory, own_random_numbers, processes, seed_host

Collate: TypeAlias = Callable[[list[Any]], Any]
Check: TypeAlias = Callable[[Tensor, Tensor], None]  # raises for invalid labels at these positions
KeepData = Literal["auto", "device", "host"]
READINGS, FURTHER = 32, 8  # samples read twice to detect random transforms: at first, and later


@dataclass(frozen=True)
class Batch:
    """Samples on a device: their positions in the data set, and the model's input.

    If several processes share a batch, ``rows`` and ``labels`` cover the whole batch, and ``data`` is the ``part`` of
    this process.
    """

    rows: Tensor
    data: Data
    part: processes.Part | None = None

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def labels(self) -> Tensor:
        """The labels of the samples, as in the data set; whole numbers as int64."""
        return exchange.gathered(plain_labels(labels_of(self.data)), self.part)

    def with_labels(self, labels: Tensor) -> Batch:
        """Return the same samples with other labels."""
        mine = self.part.rows(labels) if self.part else labels
        data = {**self.data, "labels": mine} if isinstance(self.data, Mapping) else (self.data[0], mine)
        return Batch(rows=self.rows, data=data, part=self.part)


class Samples:
    """Uniform access to a data set: its size, its labels, and batches by position.

    Data that fits in a quarter of the device's free memory stays on the device after the first reading, as it is
    stored; a later batch is then an indexing operation. Data with random transforms (two readings of a sample differ)
    is not kept. Data that is not kept is prefetched, on a GPU by worker processes. The batches are the same either way.
    Only requested positions are read.

    ``keep_data`` overrides the choice: ``"device"`` keeps all data without random transforms, whatever its size, and
    ``"host"`` keeps nothing. ``workers`` is the number of worker processes per stream of batches; None chooses it.
    ``cut_padding`` says whether batches of tokens are cut to their longest sentence. None checks whether that changes
    the model's outputs, as it does if the model ignores the attention mask.

    >>> samples = Samples((torch.zeros(4, 3, 2, 2, dtype=torch.uint8), torch.arange(4)))
    >>> samples.keep_data = "host"
    """

    def __init__(self, dataset: Any, *, collate: Collate | None = None) -> None:
        self.dataset = as_dataset(dataset)
        try:
            len(self.dataset)
        except TypeError:
            raise UsageError(
                f"The data set must have a length and be indexed by position, but this is {short(dataset)}."
            ) from None
        if collate is not None and not callable(collate):
            raise UsageError(f"collate must be a function of a list of samples, not {short(collate)}.")
        self.collate = stacked if collate is None else collate
        self.keep_data: KeepData = "auto"
        self.workers: int | None = None
        self.cut_padding: bool | None = None
        self.fine_classes: Tensor | None = None  # numbers of the classes that a split was made by, one per sample
        self._labels: Tensor | None = None
        self._shelves: dict[torch.device, Shelf | None] = {}
        self._varies = False
        self._steady: set[int] = set()  # samples whose readings were all equal

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: Tensor) -> Data:
        """Return a batch from the data set, on the CPU."""
        if isinstance(self.dataset, Stored):
            return self.dataset.batch(rows)
        positions = rows.tolist()
        many = getattr(self.dataset, "__getitems__", None)
        samples = many(positions) if many else [self.dataset[position] for position in positions]
        try:
            data: Data = self.collate(samples)
        except (TypeError, ValueError, KeyError) as error:
            if isinstance(error, UsageError):
                raise
            columns = f" with the columns {', '.join(map(str, samples[0]))}" if isinstance(samples[0], Mapping) else ""
            reason = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"collate= cannot make a batch of samples{columns}: {reason} Remove the columns that the model does "
                "not take (in a Hugging Face data set: remove_columns)."
            ) from error
        data = without_index(data)
        labels_of(data)
        return data

    def labels(self) -> Tensor:
        """Return the training label of every sample. Each sample is read at most once."""
        if self._labels is None:
            if isinstance(self.dataset, Stored):
                self._labels = self.dataset.labels()
            elif self.collate is stacked and (column := label_column(self.dataset)) is not None:
                only = self.dataset.select_columns([column]).with_format("numpy")
                self._labels = as_labels(only[:][column])
            else:
                with own_random_numbers():  # a transform may draw from the global generators
                    every = [labels_of(self.read(torch.tensor([row]))) for row in range(len(self))]
                self._labels = torch.cat(every)
            self._labels = plain_labels(self._labels)
        return self._labels

    def varies(self, rows: Tensor) -> bool:
        """Check for random transforms: whether two readings of a sample can differ."""
        if isinstance(self.dataset, Stored):
            return False
        if not self._varies:
            most = FURTHER if self._steady else READINGS
            spread = torch.linspace(0, len(rows) - 1, min(most, len(rows))).long()
            some = [row for row in rows.cpu()[spread].tolist() if row not in self._steady]
            often = max(2, most // max(1, len(some)))  # with few samples, read each several times
            readings = [self._readings(some, seed) for seed in range(often)]
            self._varies = not all(same(readings[0], other) for other in readings[1:])
            self._steady.update(some)
        return self._varies

    def _readings(self, rows: list[int], seed: int) -> list[Data]:
        """Read samples one by one. The seed is fixed, so a resumed run gets the same answer."""
        with own_random_numbers():  # a transform may draw from the global generators
            seed_host(seed)
            return [self.read(torch.tensor([row])) for row in rows]

    def keep(self, rows: Tensor, device: torch.device, *, how: KeepData = "auto") -> None:
        """Read these samples onto the device now, if they fit and have no random transforms.

        ``how`` is the run's choice. ``keep_data`` overrides it unless it is "auto".
        """
        how = as_keep_data(how if self.keep_data == "auto" else self.keep_data)
        if how == "host":
            return
        if self.varies(rows):
            self._shelves = dict.fromkeys([*self._shelves, device])  # drop what was kept so far
            return
        try:
            if device not in self._shelves:
                self._shelves[device] = self._new_shelf(rows, device, how)
            shelf = self._shelves[device]
            if shelf is not None and not shelf.add(rows):
                self._shelves[device] = None
        except torch.OutOfMemoryError:
            if how == "device":
                raise
            self._shelves[device] = None

    def kept(self, device: torch.device) -> bool:
        """Tell whether samples are kept on the device. Then a batch by device positions does not synchronise."""
        return self._shelf(device) is not None

    def kept_labels(self, rows: Tensor, device: torch.device) -> Tensor | None:
        """Return the labels of samples that are kept on the device, or None if none are kept."""
        shelf = self._shelf(device)
        return None if shelf is None else labels_of(shelf.data)[rows.to(device)]

    def token_lengths(self, device: torch.device) -> Tensor | None:
        """Return the number of tokens of every kept sample, on the host, or None if no padded samples are kept."""
        shelf = self._shelf(device)
        return None if shelf is None else shelf.lengths

    def batch(
        self,
        rows: Tensor,
        device: torch.device,
        *,
        check: Check | None = None,
        longest: int | None = None,
        known: bool = False,
        cut: bool = False,
    ) -> Batch:
        """Return the samples at these positions as a batch on the device.

        Samples that are not on the device are read. Positions on the host are looked up first, unless ``known`` says
        that their samples are on the device. ``check`` validates labels that are read, on the CPU. Padding is cut to
        ``longest`` tokens; with ``cut``, samples that are read are cut to their longest sentence.
        """
        shelf = self._shelf(device)
        if shelf is not None and (known or rows.device.type != "cpu" or shelf.has(rows)):
            rows = rows.to(device)
            return Batch(rows=rows, data=shelf.take(rows, longest))
        return self._arrived(rows, self.read(rows.cpu()), device, check, cut)

    def batches(
        self, orders: Iterable[Order], device: torch.device, *, check: Check | None = None, cut: bool = False
    ) -> Iterator[Batch]:
        """Yield prefetched batches of data that is not kept.

        An order holds positions on the host and, for random transforms, a seed.
        """
        waiting: deque[Tensor] = deque()

        def noted() -> Iterator[Order]:
            for order in orders:
                waiting.append(order[0])
                yield order

        for data in stream(self.read, noted(), self._workers(device), device.type == "cuda"):
            yield self._arrived(waiting.popleft(), data, device, check, cut)

    def _arrived(self, rows: Tensor, data: Data, device: torch.device, check: Check | None, cut: bool) -> Batch:
        if check is not None:
            check(labels_of(data), rows)
        if cut and (lengths := token_lengths(data)) is not None:
            data = trimmed(data, int(lengths.max()))
        return Batch(rows=to_device(rows, device), data=to_device(data, device))

    def _shelf(self, device: torch.device) -> Shelf | None:
        return None if self.keep_data == "host" else self._shelves.get(device)

    def _workers(self, device: torch.device) -> int:
        if isinstance(self.dataset, Columns):  # indexing whole tensors is faster than worker processes
            return 0
        return worker_count(device, self.dataset, self.collate) if self.workers is None else self.workers

    def _new_shelf(self, rows: Tensor, device: torch.device, how: KeepData) -> Shelf | None:
        one = self.read(rows[:1].cpu())
        if form_of(one, 1) is None or (how == "auto" and byte_size(one) * len(self) > _room(device)):
            return None
        whole = self.dataset.data if isinstance(self.dataset, Columns) else None
        return Shelf(self.read, len(self), device, whole=whole, workers=self._workers(device))


def as_keep_data(word: str) -> KeepData:
    """Return a valid choice. Raises `UsageError` for any other word."""
    if not isinstance(word, str) or word not in get_args(KeepData):
        raise unknown("keep_data", word, get_args(KeepData))
    choice: KeepData = next(choice for choice in get_args(KeepData) if choice == word)
    return choice


def _room(device: torch.device) -> int:
    """A quarter of the free memory: the model, its gradients and activations need the rest."""
    if device.type == "cuda":
        return free_memory(device) // 4
    return int(psutil.virtual_memory().available // 4 // processes.count())
