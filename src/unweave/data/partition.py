"""Splits: which training samples to forget, which are adjacent to them, and which are remote.

A split holds indices. It needs no model.

>>> data = (torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
>>> split = Partition.by_class(data, fine=[0, 0, 1, 2, 2, 3], forget="cat", names=["cat", "dog", "car", "bus"])
>>> print(split)
Split of 6 samples: 2 forget, 1 adjacent, 3 remote
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from unweave.data.labels import as_groups
from unweave.data.samples import Collate, Samples
from unweave.errors import (
    UsageError,
    as_number,
    as_path,
    as_whole,
    plain_value,
    require_names,
    require_type,
    short,
    unknown,
)
from unweave.storage import COUNT, LIST, TEXT, read_json, require_form, write_whole

SUBSETS = ("forget", "adjacent", "remote")
RETAINED = ("adjacent", "remote")
EVERY = (*SUBSETS, "forgotten")
Subset: TypeAlias = Literal["forget", "adjacent", "remote"]
Indices: TypeAlias = "Sequence[int] | range | Tensor | np.ndarray[Any, Any]"
Condition: TypeAlias = "Indices | Callable[[Any], bool]"
FORMAT = {"format": "unweave-split", "version": 1}


class Partition:
    """Training data in three parts: *forget*, *adjacent* (retained, entangled with it) and *remote* (the rest).

    ``dataset`` is any map-style torch data set, Hugging Face data set, pair of tensors (inputs, labels) or
    mapping of tensors with ``"labels"``. Samples without random transforms may be cached after the first reading, so
    make a new split if the data changes. ``remote=None`` means every sample that is in no other subset. ``collate``
    turns a list of samples into a batch (for text: a padding collator). An empty subset raises an error unless
    ``allow_empty=True``, which is meant for test data. ``forgotten`` holds the samples that the model forgot in earlier
    requests: they are not retained data, and must stay forgotten (see `after`).
    """

    def __init__(
        self,
        dataset: Any,
        forget: Indices,
        adjacent: Indices,
        remote: Indices | None = None,
        *,
        forgotten: Indices = (),
        collate: Collate | None = None,
        allow_empty: bool = False,
    ) -> None:
        self.samples = dataset if isinstance(dataset, Samples) else Samples(dataset, collate=collate)
        size = len(self.samples)
        self.forget = positions_of("forget", forget, size)
        self.adjacent = positions_of("adjacent", adjacent, size)
        self.forgotten = positions_of("forgotten", forgotten, size)
        if remote is None:
            taken = np.concatenate([self.forget, self.adjacent, self.forgotten])
            remote = np.setdiff1d(np.arange(size), taken)
        self.remote = positions_of("remote", remote, size)
        require_type("allow_empty", plain_value(allow_empty), bool, "true or false")
        self.allow_empty = bool(allow_empty)
        self._check(self.allow_empty)

    def _check(self, allow_empty: bool) -> None:
        for index, name in enumerate(EVERY):
            if len(self[name]) == 0 and not allow_empty and name in SUBSETS:
                raise UsageError(
                    f"The {name} set is empty. Give it at least one sample"
                    + (" (Split.by_neighbours finds adjacent data)." if name == "adjacent" else ".")
                )
            for other in EVERY[index + 1 :]:
                both = np.intersect1d(self[name], self[other])
                if len(both):
                    raise UsageError(
                        f"{len(both)} samples are in both {name} and {other} (first: {both[0]}). "
                        "Give each sample to one subset."
                    )

    # Constructors

    @classmethod
    def by_class(
        cls,
        dataset: Any,
        *,
        fine: Indices,
        forget: int | str | Sequence[int | str],
        names: Sequence[str] | None = None,
        labels: Indices | None = None,
        collate: Collate | None = None,
        allow_empty: bool = False,
    ) -> Self:
        """Forget whole fine classes; adjacent samples share their training label.

        ``fine`` gives the fine class of every sample, ``names`` the names of the fine classes. With ``labels``
        the training labels need not be read from the data set.
        """
        samples = Samples(dataset, collate=collate)
        fine = _entries("fine", fine)
        if fine.ndim != 1:
            raise UsageError(f"fine must hold one class per sample, but has the shape {fine.shape}.")
        if len(fine) != len(samples):
            raise UsageError(f"fine has {len(fine)} entries, but the data set has {len(samples)} samples.")
        try:
            wanted = (
                [forget]
                if isinstance(forget := plain_value(forget), int | str)
                else [plain_value(one) for one in forget]
            )
        except TypeError:
            raise UsageError(f"forget must be a fine class or a list of them, not {short(forget)}.") from None
        if names is not None:
            require_names(names)
        codes = [_class_code(name, names, fine) for name in wanted]
        label = _entries("labels", labels) if labels is not None else _groups(samples)
        if label.shape != fine.shape:
            raise UsageError(f"labels has the shape {label.shape}, but the data set has {len(samples)} samples.")
        samples.fine_classes = torch.from_numpy(np.unique(fine, return_inverse=True)[1])
        is_forget = np.isin(fine, codes)
        is_adjacent = np.isin(label, np.unique(label[is_forget])) & ~is_forget
        return cls(samples, np.flatnonzero(is_forget), np.flatnonzero(is_adjacent), allow_empty=allow_empty)

    @classmethod
    def where(
        cls,
        dataset: Any,
        *,
        forget: Condition,
        adjacent: Condition,
        collate: Collate | None = None,
        allow_empty: bool = False,
    ) -> Self:
        """Forget the samples that meet a condition: a mask with one boolean per sample, or a function of the sample.

        A sample that meets both conditions is forgotten. A sample that meets neither is remote.

        >>> data = (torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1]))
        >>> print(Partition.where(data, forget=[True, False, False], adjacent=lambda sample: int(sample[1]) == 0))
        Split of 3 samples: 1 forget, 1 adjacent, 1 remote
        """
        samples = Samples(dataset, collate=collate)
        is_forget = _mask("forget", forget, samples)
        is_adjacent = _mask("adjacent", adjacent, samples) & ~is_forget
        return cls(samples, np.flatnonzero(is_forget), np.flatnonzero(is_adjacent), allow_empty=allow_empty)

    def with_noise(self, *, remote_to_adjacent: float = 0.0, adjacent_to_remote: float = 0.0, seed: int = 0) -> Self:
        """Move a random share of retained samples to the wrong subset, to measure the effect (the paper's study)."""
        generator = np.random.default_rng(as_whole("seed", seed, at_least=0))
        moved = {}
        for name, given in (("remote", remote_to_adjacent), ("adjacent", adjacent_to_remote)):
            share = as_number(f"The share of {name} samples to misplace", given)
            if not 0 <= share <= 1:
                raise UsageError(f"The share of {name} samples to misplace is {share}, but must be in [0, 1].")
            moved[name] = generator.permutation(self[name])[: round(share * len(self[name]))]
        return type(self)(
            self.samples,
            self.forget,
            np.concatenate([np.setdiff1d(self.adjacent, moved["adjacent"]), moved["remote"]]),
            np.concatenate([np.setdiff1d(self.remote, moved["remote"]), moved["adjacent"]]),
            forgotten=self.forgotten,
            allow_empty=self.allow_empty,
        )

    def after(self, *earlier: Partition) -> Self:
        """Return the split for a model from which earlier ones have been unlearned.

        Samples that they forgot are no longer retained data: they become *forgotten*, and ``two-stage`` and ``unweave``
        keep them forgotten. The same holds for test splits.

        >>> data = (torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> first, second = Partition(data, forget=[0], adjacent=[1, 2]), Partition(data, forget=[3], adjacent=[4, 5])
        >>> print(second.after(first))
        Split of 6 samples: 1 forget, 2 adjacent, 2 remote, 1 forgotten
        """
        for other in earlier:
            require_type("earlier", other, Partition, "made of splits")
            if len(other.samples) != len(self.samples):
                raise UsageError(
                    f"An earlier split has {len(other.samples)} samples, but this one has {len(self.samples)}. "
                    "Both must be made from the same data set."
                )
        gone = np.unique(
            np.concatenate([self.forgotten, *(other[name] for other in earlier for name in ("forget", "forgotten"))])
        )
        gone = np.setdiff1d(gone, self.forget)
        kept = (np.setdiff1d(self[name], gone) for name in RETAINED)
        return type(self)(self.samples, self.forget, *kept, forgotten=gone, allow_empty=self.allow_empty)

    # Subsets and indices

    def __getitem__(self, subset: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        if not isinstance(subset, str) or subset not in EVERY:
            raise unknown("subset", subset, EVERY)
        indices: np.ndarray[Any, np.dtype[np.int64]] = getattr(self, subset)
        return indices

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the subsets. *forgotten* is included if earlier requests forgot samples."""
        return EVERY if len(self.forgotten) else SUBSETS

    @property
    def to_forget(self) -> tuple[str, ...]:
        """The names of the subsets that the model must not know: *forget* and, if it has samples, *forgotten*."""
        return tuple(name for name in self.names if name in ("forget", "forgotten"))

    def rows(self, *subsets: str) -> Tensor:
        """Return the positions of one or more subsets, in the order of the data set."""
        return torch.from_numpy(np.sort(np.concatenate([self[subset] for subset in subsets])))

    @property
    def hash(self) -> str:
        """A hash of the subsets' indices. It does not depend on the content of the samples."""
        digest = hashlib.sha256(f"{len(self.samples)}".encode())
        for subset in self.names:
            digest.update(subset.encode() + self[subset].astype("<i8").tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and self.hash == other.hash

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(self[subset])} {subset}" for subset in self.names)
        return f"Split of {len(self.samples)} samples: {sizes}"

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><th>{name}</th><td>{len(self[name])}</td></tr>" for name in self.names)
        return f"<table><caption>Split of {len(self.samples)} samples</caption>{cells}</table>"

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the indices as JSON, atomically. Only their owner can read them."""
        file = as_path("path", path)
        if not file.name:
            raise UsageError(f"{str(path)!r} is not the name of a file.")
        write_whole(file, self.to_json().encode(), private=True)

    def to_json(self) -> str:
        """Return the indices as JSON, as `save` writes them."""
        content = {**FORMAT, "samples": len(self.samples), "hash": self.hash}
        return json.dumps(content | {subset: self[subset].tolist() for subset in self.names}) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str], dataset: Any, *, collate: Collate | None = None) -> Self:
        """Read indices for this data set, written by `save` or by you in the same format."""
        content = _read_json(as_path("path", path))
        samples = dataset if isinstance(dataset, Samples) else Samples(dataset, collate=collate)
        if content["samples"] != len(samples):
            raise UsageError(
                f"{path} was made for {content['samples']} samples, but the data set has {len(samples)}. "
                "Use the data set that the split was made from."
            )
        for subset in (*SUBSETS, "forgotten"):
            if len(content.get(subset) or ()) > len(samples):
                raise UsageError(f"{path} lists more {subset} samples than the data set has.")
        split = cls(
            samples,
            *(content[subset] for subset in SUBSETS),
            forgotten=content.get("forgotten") or (),
            allow_empty=True,
        )
        if content.get("hash", split.hash) != split.hash:
            raise UsageError(f"{path} does not match its own hash: it was changed or damaged.")
        return split


def _read_json(path: Path) -> Mapping[str, Any]:
    content: Any = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT["format"]:
        raise UsageError(f'{path} is not a split file: the line "format": "{FORMAT["format"]}" is missing.')
    if content.get("version") != FORMAT["version"]:
        raise UsageError(f"{path} has version {content.get('version')!r}; this unweave reads {FORMAT['version']}.")
    form = {"samples": COUNT, **dict.fromkeys(SUBSETS, LIST), "forgotten?": LIST, "hash?": TEXT}
    require_form(content, form, str(path))
    found: Mapping[str, Any] = content
    return found


def positions_of(name: str, values: Any, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return sorted positions as int64. Raises `UsageError` for invalid ones."""
    if isinstance(values, Iterable) and not isinstance(values, Sequence | np.ndarray | Tensor):
        values = list(values)
    found = _entries(f"The {name} indices", values, "a list of whole numbers")
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        hint = " For a boolean mask use Split.where." if found.dtype.kind == "b" else ""
        raise UsageError(f"The {name} indices must be a list of whole numbers, not {found.dtype} values.{hint}")
    outside = found[(found < 0) | (found >= size)]
    if len(outside):
        raise UsageError(
            f"{len(outside)} {name} indices are outside the data set of {size} samples (first: {outside[0]}). "
            f"Use positions from 0 to {size - 1}."
        )
    once, counts = np.unique(found, return_counts=True)
    if len(once) != len(found):
        raise UsageError(f"{name} lists sample {once[counts > 1][0]} more than once. List each sample once.")
    return once.astype(np.int64)


def _entries(name: str, values: Any, words: str = "a list with one entry per sample") -> np.ndarray[Any, Any]:
    """Return a list, an array or a tensor as an array."""
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{name} must be {words}, not {short(values)}: {reason}") from error


def _groups(samples: Samples) -> np.ndarray[Any, Any]:
    """Return a group number per sample; samples with the same training label share it."""
    labels = samples.labels()
    if labels.is_floating_point() and not bool(((labels == 0) | (labels == 1)).all()):
        raise UsageError(
            "Adjacent data shares its training label with the forget set, but these labels are continuous. Choose the "
            "adjacent data yourself (Split, Split.where), or pass class labels as labels=."
        )
    return as_groups(labels).numpy()


def _mask(name: str, condition: Condition, samples: Samples) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if callable(condition):
        try:
            return np.array([bool(condition(samples.dataset[row])) for row in range(len(samples))])
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
            raise UsageError(
                f"The {name} condition must be a function of one sample that returns True or False: {error}"
            ) from error
    mask = _entries(f"The {name} mask", condition)
    if mask.dtype.kind != "b" or mask.shape != (len(samples),):
        raise UsageError(
            f"The {name} mask must hold one boolean for each of the {len(samples)} samples, not {mask.dtype} values "
            f"of shape {mask.shape}. For indices use Split(...)."
        )
    return mask


def _class_code(name: int | str, names: Sequence[str] | None, fine: np.ndarray[Any, Any]) -> int | str:
    if isinstance(name, str) and names is not None:
        if name not in names:
            raise unknown("class", name, names)
        name = list(names).index(name)
    if not isinstance(name, int | str) or not (fine == name).any():
        raise UsageError(f"No sample has the fine class {short(name)}. The classes are {np.unique(fine).tolist()}.")
    return name
