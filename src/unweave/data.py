"""How a user's data set becomes batches on a device.

A data set is a map-style torch data set, a Hugging Face data set, a pair of tensors (inputs, labels) or a
mapping of tensors with a ``"labels"`` entry. A batch is what the model is trained on: a pair
``(inputs, labels)`` or a mapping with ``"labels"``. Everything downstream sees only `Samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from unweave.errors import UsageError
from unweave.randomness import own_random_numbers
from unweave.trees import byte_size, join, map_tensors, same, shapes, tensors_of

Data: TypeAlias = "tuple[Any, Tensor] | Mapping[str, Any]"
Collate: TypeAlias = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Batch:
    """Some samples on a device: their positions in the data set, and what the model takes."""

    rows: Tensor
    data: Data

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The labels of the samples."""
        return labels_of(self.data)

    def with_labels(self, labels: Tensor) -> Batch:
        """Return the same samples under other labels."""
        data = {**self.data, "labels": labels} if isinstance(self.data, Mapping) else (self.data[0], labels)
        return Batch(rows=self.rows, data=data)


def labels_of(data: Data) -> Tensor:
    """Return the labels of a batch.

    >>> labels_of((torch.zeros(2, 3), torch.tensor([1, 0])))
    tensor([1, 0])
    """
    labels: Any
    if isinstance(data, Mapping):
        if "labels" not in data:
            raise UsageError(f"A mapping batch needs the key 'labels'; it has {sorted(data)}.")
        labels = data["labels"]
    elif isinstance(data, Sequence) and len(data) == 2:
        labels = data[1]
    else:
        raise UsageError(
            f"A sample must be a pair (inputs, labels) or a mapping with 'labels', not {type(data).__name__}."
        )
    return torch.as_tensor(labels)


def require_known_labels(labels: Tensor, rows: Tensor, classes: int) -> None:
    """Refuse labels that a model with so many classes has no logit for."""
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        place = int(bad[0])
        raise UsageError(
            f"Sample {int(rows[place])} has the label {int(labels[place])}, but the model has "
            f"{classes} classes (0 to {classes - 1})."
        )


def move(data: Any, device: torch.device) -> Any:
    """Copy every tensor of a batch to a device."""
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), data)


class Samples:
    """Uniform access to a data set: its size, its labels, and batches by position.

    Data that fits is kept on the device once it has been read, so that a later batch is an indexing
    operation; random transforms are noticed (two readings of a sample differ) and then nothing is kept.
    Only positions that were asked for are ever read.
    """

    def __init__(self, dataset: Any, *, collate: Collate | None = None) -> None:
        self.dataset = _as_dataset(dataset)
        self.collate = collate or _collate
        self._labels: Tensor | None = None
        self._shelves: dict[torch.device, _Shelf | None] = {}
        self._varies: bool | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: Tensor) -> Data:
        """Return a batch as the data set gives it, on the CPU."""
        if isinstance(self.dataset, _Columns):
            return self.dataset.batch(rows)
        positions = rows.tolist()
        many = getattr(self.dataset, "__getitems__", None)
        samples = many(positions) if many else [self.dataset[position] for position in positions]
        data: Data = self.collate(samples)
        labels_of(data)
        return data

    def labels(self) -> Tensor:
        """Return the training label of every sample, reading each sample once at most."""
        if self._labels is None:
            if isinstance(self.dataset, _Columns):
                self._labels = labels_of(self.dataset.batch(torch.arange(len(self))))
            elif (column := _label_column(self.dataset)) is not None:
                only = self.dataset.select_columns([column]).with_format("numpy")
                self._labels = torch.as_tensor(only[:][column])
            else:
                every = [labels_of(self.read(torch.tensor([row]))) for row in range(len(self))]
                self._labels = torch.cat(every)
            if self._labels.is_floating_point() or self._labels.ndim != 1:
                raise UsageError(
                    f"Labels must be one integer per sample, not {self._labels.dtype} of shape "
                    f"{tuple(self._labels.shape)}."
                )
        return self._labels

    def varies(self, rows: Tensor) -> bool:
        """Tell whether reading a sample twice can give two results (random transforms)."""
        if isinstance(self.dataset, _Columns):
            return False
        if self._varies is None:
            some = rows[:16].cpu()
            with own_random_numbers():  # a transform may draw from the global generators
                self._varies = not same(self.read(some), self.read(some))
        return self._varies

    def keep(self, rows: Tensor, device: torch.device) -> None:
        """Read these samples onto the device now, if they fit there and never vary."""
        if device not in self._shelves:
            self._shelves[device] = self._new_shelf(rows, device)
        shelf = self._shelves[device]
        if shelf is not None and not shelf.add(rows):
            self._shelves[device] = None

    def batch(self, rows: Tensor, device: torch.device, *, classes: int | None = None) -> Batch:
        """Return the samples at these positions as a batch on the device.

        With ``classes``, labels that the model does not know are refused while they are still on the CPU. (Those of
        data that is kept on the device were checked when it was put there.)
        """
        shelf = self._shelves.get(device)
        if shelf is not None:
            rows = rows.to(device)
            return Batch(rows=rows, data=shelf.take(rows))
        data = self.read(rows.cpu())
        if classes is not None:
            require_known_labels(labels_of(data), rows, classes)
        return Batch(rows=rows.to(device), data=move(data, device))

    def kept(self, device: torch.device) -> bool:
        """Tell whether samples are kept on the device. Then a batch by positions that are there waits for nothing."""
        return self._shelves.get(device) is not None

    def kept_labels(self, rows: Tensor, device: torch.device) -> Tensor | None:
        """Return the labels of samples that are kept on the device, or None where none are."""
        shelf = self._shelves.get(device)
        return None if shelf is None else labels_of(shelf.data)[shelf.place[rows.to(device)]]

    def _new_shelf(self, rows: Tensor, device: torch.device) -> _Shelf | None:
        if self.varies(rows):
            return None
        one = self.read(rows[:1].cpu())
        if byte_size(one) * len(self) > _room(device):
            return None
        return _Shelf(self, device)


class _Shelf:
    """Samples kept on a device, found by their position in the data set."""

    def __init__(self, samples: Samples, device: torch.device) -> None:
        self.samples, self.device = samples, device
        self.place = torch.full((len(samples),), -1, dtype=torch.long, device=device)
        self.data: Any = None
        if isinstance(samples.dataset, _Columns):  # already tensors: move them as they are
            self.data = move(samples.dataset.whole(), device)
            _require_finite(self.data, torch.arange(len(samples)))
            self.place = torch.arange(len(samples), device=device)

    def add(self, rows: Tensor) -> bool:
        """Read what is not here yet; tell whether samples have one shape, so that they can be kept."""
        rows = rows.to(self.device)
        new = rows[self.place[rows] < 0]
        if len(new) == 0:
            return True
        read = [self.samples.read(chunk.cpu()) for chunk in new.split(1024)]
        if len({shapes(data) for data in [*read, *([] if self.data is None else [self.data])]}) > 1:
            return False
        data = join(read)
        _require_finite(data, new)
        start = 0 if self.data is None else len(labels_of(self.data))
        data = move(data, self.device)
        self.data = data if self.data is None else join([self.data, data])
        self.place[new] = torch.arange(start, start + len(new), device=self.device)
        return True

    def take(self, rows: Tensor) -> Any:
        places = self.place[rows]
        return map_tensors(lambda tensor: tensor[places], self.data)


class _Columns:
    """A data set made of whole tensors: a pair (inputs, labels) or a mapping."""

    def __init__(self, data: Data) -> None:
        self.data = data
        lengths = {len(column) for column in (data.values() if isinstance(data, Mapping) else data)}
        if len(lengths) != 1:
            raise UsageError(f"All tensors must have the same length; these have {sorted(lengths)}.")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> Any:
        return map_tensors(lambda tensor: tensor[position], self.data)

    def batch(self, rows: Tensor) -> Data:
        data: Data = map_tensors(lambda tensor: tensor[rows.to(tensor.device)], self.data)
        return data

    def whole(self) -> Data:
        return self.data


@contextmanager
def reading(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put the model in evaluation mode on the device, without gradients, and back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    first = next(iter(model.parameters()), None)
    home = first.device if first is not None else device
    model.to(device).eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.to(home)
        for module, mode in modes:
            module.training = mode


def pick_device(device: str | torch.device | None) -> torch.device:
    """Return the device asked for, or the best one there is."""
    if device is None:
        from accelerate import PartialState

        found = PartialState().device
        return torch.device(found.type, found.index or 0) if found.type == "cuda" else found
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"The device {str(device)!r} cannot be used here: {error}") from error
    return torch.device("cuda", 0) if chosen.type == "cuda" and chosen.index is None else chosen


def _as_dataset(data: Any) -> Any:
    if isinstance(data, IterableDataset):
        raise UsageError("An iterable data set has no positions. Pass a map-style data set.")
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(c, Tensor | np.ndarray) for c in data):
        return _Columns(tuple(torch.as_tensor(column) for column in data))  # type: ignore[arg-type]
    if isinstance(data, Mapping) and all(isinstance(column, Tensor | np.ndarray) for column in data.values()):
        columns = {name: torch.as_tensor(column) for name, column in data.items()}
        labels_of(columns)
        return _Columns(columns)
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise UsageError(
            f"A data set needs len() and indexing; {type(data).__name__} has not both. Pass a map-style torch "
            "data set, a Hugging Face data set, or a pair of tensors (inputs, labels)."
        )
    return data


def _label_column(dataset: Any) -> str | None:
    """Hugging Face data sets hold labels in a column that is read without decoding the inputs."""
    names = getattr(dataset, "column_names", None)
    if not isinstance(names, list) or getattr(dataset, "format", {}).get("type") == "custom":
        return None
    return next((name for name in ("labels", "label") if name in names), None)


def _collate(samples: list[Any]) -> Any:
    """Stack samples; in mappings, call ``label`` ``labels`` and leave text out, as Hugging Face collators do."""
    if isinstance(samples[0], Mapping):
        names = [name for name, value in samples[0].items() if not isinstance(value, str | bytes)]
        samples = [
            {"labels" if name == "label" else name: _tensor(name, sample[name]) for name in names} for sample in samples
        ]
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"The samples cannot be stacked into a batch ({error}). Give every sample one shape with a "
            "transform, or pass collate= to Split (for text: the tokenizer's padding collator)."
        ) from error


def _tensor(name: str, value: Any) -> Any:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Column {name!r} holds {type(value).__name__}, which is no tensor. Convert it with a transform "
            "(for images: to a tensor) or remove the column."
        ) from error


def _room(device: torch.device) -> int:
    """A quarter of what is free now: the model, its gradients and activations need the rest."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] // 4)
    return int(psutil.virtual_memory().available // 4)


def _require_finite(data: Any, rows: Tensor) -> None:
    for tensor in tensors_of(data):
        if tensor.is_floating_point():
            bad = ~tensor.reshape(len(tensor), -1).isfinite().all(dim=1)
            if bad.any():
                first = int(rows[int(bad.nonzero()[0])])
                raise UsageError(
                    f"{int(bad.sum())} samples hold NaN or infinite values (first: sample {first}). "
                    "Repair or leave them out before unlearning."
                )
