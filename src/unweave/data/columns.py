"""The data sets that a user may pass, and the default way to stack their samples into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from unweave.data.labels import Data, as_labels, labels_of, without_index
from unweave.data.stored import Stored
from unweave.data.trees import map_tensors
from unweave.errors import UsageError


class Columns(Stored):
    """A data set made of whole tensors: a pair (inputs, labels) or a mapping."""

    def __init__(self, data: Data) -> None:
        self.data = data
        lengths = {len(column) for column in (data.values() if isinstance(data, Mapping) else data)}
        if len(lengths) != 1:
            raise UsageError(f"All tensors must have the same length, but these have the lengths {sorted(lengths)}.")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> Any:
        return map_tensors(lambda tensor: tensor[position], self.data)

    def batch(self, rows: Tensor) -> Data:
        """Return the samples at these positions."""
        data: Data = map_tensors(lambda tensor: tensor[rows.to(tensor.device)], self.data)
        return data

    def labels(self) -> Tensor:
        """Return the label of every sample."""
        return labels_of(self.data)


def as_dataset(data: Any) -> Any:
    """Return a data set with ``len()`` and indexing: whole tensors become `Columns`, the rest stays as it is."""
    if isinstance(data, IterableDataset):
        raise UsageError("An iterable data set cannot be indexed. Pass a map-style data set.")
    if isinstance(data, TensorDataset):
        tensors = without_index(data.tensors) if _has_index(data.tensors) else data.tensors
        if len(tensors) != 2:
            raise UsageError(
                f"A TensorDataset must hold two tensors, inputs and labels, but this one holds {len(data.tensors)}. "
                "For several inputs, pass a mapping from the model's argument names to tensors, including 'labels'."
            )
        data = tensors
    if isinstance(data, tuple | list) and len(data) == 2 and _are_columns(data):
        return Columns((_tensor("inputs", data[0]), as_labels(data[1])))
    if isinstance(data, Mapping) and _are_columns([*data.values()]):
        columns = {name: _tensor(name, column) for name, column in data.items() if name != "labels"}
        return Columns({**columns, "labels": labels_of(data)})
    if (
        isinstance(data, Tensor | np.ndarray | str | bytes)
        or not hasattr(data, "__getitem__")
        or not hasattr(data, "__len__")
    ):
        raise UsageError(
            f"A data set needs samples with labels, len() and indexing, which {type(data).__name__} lacks. Pass a "
            "map-style torch data set, a Hugging Face data set, or a pair of tensors (inputs, labels)."
        )
    return data


def _has_index(tensors: Sequence[Tensor]) -> bool:
    """Tell whether the last of three tensors numbers the samples."""
    return len(tensors) == 3 and tensors[2].ndim == 1 and len(tensors[2].unique()) == len(tensors[2])


def _are_columns(data: Sequence[Any]) -> bool:
    """Tell whether these are whole columns: tensors or arrays, and perhaps lists, as labels often are."""
    whole = [isinstance(column, Tensor | np.ndarray) or _is_series(column) for column in data]
    return any(whole) and all(is_whole or isinstance(c, list | tuple) for is_whole, c in zip(whole, data, strict=True))


def _is_series(column: Any) -> bool:
    """Tell whether this is a pandas column, without importing pandas."""
    return type(column).__module__.partition(".")[0] == "pandas" and getattr(column, "ndim", 0) == 1


def label_column(dataset: Any) -> str | None:
    """Return the name of a Hugging Face data set's label column, which can be read without decoding the inputs."""
    names = getattr(dataset, "column_names", None)
    if not isinstance(names, list) or getattr(dataset, "format", {}).get("type") == "custom":
        return None
    return next((name for name in ("labels", "label") if name in names), None)


def stacked(samples: list[Any]) -> Any:
    """Stack samples. In mappings, rename ``label`` to ``labels`` and drop text, as Hugging Face collators do."""
    if isinstance(samples[0], Mapping):
        named = ("labels",) if "labels" in samples[0] else ("label",)  # text in the labels is an error
        names = [name for name, value in samples[0].items() if name in named or not isinstance(value, str | bytes)]
        samples = [
            {"labels" if name == "label" else name: _tensor(name, sample[name]) for name in names} for sample in samples
        ]
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"The samples cannot be stacked into a batch ({error}). Give all samples the same shape with a "
            "transform, or pass collate= to Split (for text, the tokenizer's padding collator)."
        ) from error


def _tensor(name: str, value: Any) -> Any:
    if _is_series(value):
        value = np.array(value)
    if isinstance(value, np.ndarray) and any(stride < 0 for stride in value.strides):
        value = value.copy()  # torch does not support negative strides
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Column {name!r} holds {type(value).__name__}, which cannot become a tensor. Convert it with a transform "
            "(for images: to a tensor) or remove the column."
        ) from error
