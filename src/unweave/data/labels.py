"""The labels of a batch: whole numbers that count the classes from 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UsageError

Data: TypeAlias = "tuple[Any, Tensor] | Mapping[str, Any]"  # a batch: (inputs, labels), or a mapping with "labels"


def labels_of(data: Data) -> Tensor:
    """Return the labels of a batch.

    >>> labels_of((torch.zeros(2, 3), torch.tensor([1, 0])))
    tensor([1, 0])
    """
    labels: Any
    if isinstance(data, Mapping):
        if "labels" not in data:
            raise UsageError(f"A batch that is a mapping needs the key 'labels', but it has {sorted(data)}.")
        labels = data["labels"]
    elif isinstance(data, Sequence) and len(data) == 2:
        labels = data[1]
    else:
        raise UsageError(
            f"A sample must be a pair (inputs, labels) or a mapping with the key 'labels', not {type(data).__name__}."
        )
    return as_labels(labels)


def without_index(data: Any) -> Any:
    """Return a batch of (inputs, labels, index) without the index, which some data sets give; others as they are."""
    is_triple = isinstance(data, tuple | list) and len(data) == 3
    if is_triple and isinstance(data[2], Tensor) and data[2].ndim == 1 and not data[2].is_floating_point():
        return type(data)(data[:2])
    return data


def as_labels(labels: Any) -> Tensor:
    """Return labels as a tensor. Raise a `UsageError` that names their type if they are not numbers."""
    if hasattr(labels, "to_numpy"):  # a pandas column
        labels = labels.to_numpy(copy=True)  # a copy, because torch may write to it
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        one = labels[0] if isinstance(labels, Sequence | np.ndarray) and len(labels) else labels
        raise UsageError(f"Labels must be whole numbers, the classes from 0 on, not {type(one).__name__}.") from error


def class_labels(labels: Tensor) -> Tensor:
    """Return whole-number or boolean labels as 64-bit integers, the type that torch needs for classes.

    >>> class_labels(torch.tensor([True, False]))
    tensor([1, 0])
    """
    if labels.is_floating_point() or labels.is_complex() or labels.ndim != 1:
        raise UsageError(f"Labels must be one integer per sample, not {labels.dtype} of shape {tuple(labels.shape)}.")
    return labels.long()


def plain_labels(labels: Tensor) -> Tensor:
    """Return labels as tasks take them: booleans, and whole numbers of any type, as 64-bit integers.

    >>> plain_labels(torch.tensor([True, False])), plain_labels(torch.tensor([0.5]))
    (tensor([1, 0]), tensor([0.5000]))
    """
    if labels.is_complex():
        raise UsageError(f"Labels must be numbers, not {labels.dtype}.")
    return labels if labels.is_floating_point() else labels.long()


def as_groups(labels: Tensor) -> Tensor:
    """Return one whole number per sample that is the same for equal labels. Labels of a regression form one group.

    >>> as_groups(torch.tensor([[1, 0], [0, 1], [1, 0]]))
    tensor([1, 0, 1])
    """
    if labels.is_floating_point() and not bool(((labels == 0) | (labels == 1)).all()):
        return torch.zeros(len(labels), dtype=torch.long)
    return plain_labels(labels).long() if labels.ndim == 1 else labels.unique(dim=0, return_inverse=True)[1]


def require_classes(classes: int) -> None:
    """Raise a `UsageError` for a model with a single output, which some use for two classes."""
    if classes < 2:
        raise UsageError(
            "The model returns one number per sample, but it needs one output per class: two outputs for two classes."
        )


def require_known_labels(labels: Tensor, rows: Tensor, classes: int) -> None:
    """Raise a `UsageError` if a label has no logit in a model with so many classes."""
    labels = class_labels(labels)
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        require_classes(classes)
        place = int(bad[0])
        raise UsageError(
            f"Sample {int(rows[place])} has the label {int(labels[place])}, but the model has "
            f"{classes} classes (0 to {classes - 1})."
        )
