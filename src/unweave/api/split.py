"""The split that users make: a partition of the training data, and what a model says about it.

>>> data = (torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
>>> split = Split.by_class(data, fine=[0, 0, 1, 2, 2, 3], forget="cat", names=["cat", "dog", "car", "bus"])
>>> print(split)
Split of 6 samples: 2 forget, 1 adjacent, 3 remote
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from unweave.data import RETAINED, Collate, Indices, Partition, Samples, adjacency_scores, as_groups, positions_of
from unweave.errors import RunWarning, UsageError, as_number, as_whole, require_type, short, unknown
from unweave.evaluation import (
    FEW_ADJACENT,
    Entanglement,
    Inspection,
    entanglement,
    features,
    inspected,
    votes_by,
    votes_in,
)

RULES = ("named", "fixed")


class Split(Partition):
    """Training data in three parts: *forget*, *adjacent* (kept, entangled with it) and *remote* (the rest kept).

    Samples without random transforms may be kept in memory after the first reading, so make a new split if the data
    changes. `by_class`, `where` and `by_neighbours` find the indices for you. ``named`` says how many retained samples
    were named as neighbours in `by_neighbours`, whether or not its limit admitted them; it is None for other splits.

    Args:
        dataset: Any map-style torch data set, Hugging Face data set, pair of tensors (inputs, labels), or mapping of
            tensors with ``"labels"``.
        forget: Positions of the samples to forget.
        adjacent: Positions of the adjacent samples.
        remote: Positions of the remote samples. None: every sample that is in no other subset.
        forgotten: Samples that the model forgot in earlier requests. They must stay forgotten (see `after`).
        collate: Turns a list of samples into a batch (for text: a padding collator).
        allow_empty: Whether a subset may be empty, as in test data that lacks one.

    Raises:
        UsageError: A position is not in the data, a sample is in two subsets, or a subset is empty.

    >>> Split((torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1])), forget=[0], adjacent=[1, 2])
    Split of 6 samples: 1 forget, 2 adjacent, 3 remote
    """

    named: int | None = None

    @classmethod
    def by_neighbours(
        cls,
        dataset: Any,
        *,
        forget: Indices,
        model: nn.Module | None = None,
        k: int = 20,
        fraction: float = 0.10,
        rule: Literal["named", "fixed"] = "named",
        features: Tensor | np.ndarray[Any, Any] | None = None,
        collate: Collate | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """Find adjacent data with the model itself.

        Each forget sample names its ``k`` nearest retained samples. Those named most often are adjacent (equal counts:
        the earlier sample). ``split.named`` says how many were named.

        Args:
            dataset: The training data.
            forget: The samples to forget.
            model: The trained model. Distances are those of its penultimate features.
            k: How many neighbours each forget sample names.
            fraction: The largest share of the retained samples that may be adjacent.
            rule: ``"named"``: only samples that are named are adjacent, at most ``fraction``. ``"fixed"``: exactly
                ``fraction``, as in the paper's appendix; if too few are named, the first unnamed samples fill it up.
            features: Features of every sample, instead of the model's.
            collate: Turns a list of samples into a batch.
            device: Where to compute. None: the best there is.

        Returns:
            The split. A `RunWarning` says if fewer than 50 samples are adjacent by the rule ``"named"``.

        Raises:
            UsageError: Neither a model nor its features are given, or an argument does not fit.

        >>> line = torch.arange(200.0)[:, None]
        >>> split = Split.by_neighbours((line, line[:, 0] > 99), forget=range(60), features=line, k=60, fraction=0.5)
        >>> print(split)
        Split of 200 samples: 60 forget, 60 adjacent, 80 remote; 60 were named as neighbours
        """
        if not isinstance(rule, str) or rule not in RULES:
            raise unknown("rule", rule, RULES)
        samples = dataset if isinstance(dataset, Samples) else Samples(dataset, collate=collate)
        gone = positions_of("forget", forget, len(samples))
        kept = np.setdiff1d(np.arange(len(samples)), gone)
        if len(gone) == 0 or len(kept) == 0:
            raise UsageError(f"{len(gone)} of {len(samples)} samples are to be forgotten. Forget some and keep some.")
        fraction, k = as_number("fraction", fraction), as_whole("k", k, at_least=1)
        if not 0 < fraction < 1:
            raise UsageError(f"fraction is {fraction}, but must be between 0 and 1.")
        found = _features(model, samples, features, device)
        scores = adjacency_scores(found[gone], found[kept], k).numpy()
        named, limit = int((scores > 0).sum()), max(1, round(fraction * len(kept)))
        count = limit if rule == "fixed" else min(limit, named)
        split = cls(samples, gone, kept[np.argsort(-scores, kind="stable")[:count]])
        split.named = named
        if rule == "named":
            _warn_if_few(count, f"fraction ({fraction:g})" if named > limit else f"k ({k})")
        return split

    def __repr__(self) -> str:
        named = "" if self.named is None else f"; {self.named} were named as neighbours"
        return super().__repr__() + named

    def entanglement(
        self,
        model: nn.Module | None = None,
        *,
        k: int = 20,
        groups: Indices | None = None,
        names: Sequence[str] | None = None,
        features: Tensor | np.ndarray[Any, Any] | None = None,
        device: str | torch.device | None = None,
    ) -> Entanglement:
        """Measure, before any unlearning, which retained groups are nearest to the forget set.

        Args:
            model: The trained model, in whose features neighbours are found.
            k: How many neighbours of each forget sample to look at.
            groups: A group for every sample of the data set, such as its fine class. None: its training label.
            names: Names of groups that are numbers.
            features: Features of every sample, instead of the model's.
            device: Where to compute. None: the best device available.

        Returns:
            The share of the neighbours that are retained and have the same label, and the groups most at risk.

        Raises:
            UsageError: Neither a model nor its features are given, or they do not fit.

        >>> data = (torch.tensor([[0.0], [0.1], [0.2], [9.0]]), torch.tensor([0, 0, 0, 1]))
        >>> Split(data, forget=[0], adjacent=[1, 2]).entanglement(features=data[0], k=2).score
        1.0
        """
        found = _features(model, self.samples, features, device)
        return self._entanglement(found, k=k, groups=groups, names=names)

    def inspect(
        self,
        model: nn.Module | None = None,
        *,
        k: int = 20,
        groups: Indices | None = None,
        names: Sequence[str] | None = None,
        features: Tensor | np.ndarray[Any, Any] | None = None,
        device: str | torch.device | None = None,
    ) -> Inspection:
        """Look at the split with the model, before any unlearning.

        Args:
            model: The trained model, in whose features neighbours are found.
            k: How many neighbours of each forget sample to look at.
            groups: A group for every sample of the data set, such as its fine class. None: its training label.
            names: Names of groups that are numbers.
            features: Features of every sample, instead of the model's. The forecast then rests on them alone, and is
                too high where a model has learned labels that its data does not explain.
            device: Where to compute. None: the best there is.

        Returns:
            Entanglement, what a model that never saw the forget data would probably still recognise, and advice.

        Raises:
            UsageError: Neither a model nor its features are given, or they do not fit.

        >>> data = (torch.tensor([[0.0], [0.1], [0.2], [9.0]]), torch.tensor([0, 0, 0, 1]))
        >>> found = Split(data, forget=[0], adjacent=[1, 2]).inspect(features=data[0], k=2)
        >>> found.still_recognised, found.entanglement.score
        (1.0, 1.0)
        """
        found = _features(model, self.samples, features, device)
        known = self._entanglement(found, k=k, groups=groups, names=names)
        forget, kept, labels = self.rows("forget"), self.rows(*RETAINED), self.samples.labels()
        if features is None and model is not None:
            voted = votes_in(model, self.samples, forget, kept, labels, k=known.k, device=device)
        else:
            voted = votes_by([found], forget, kept, labels, k=known.k)
        return inspected(self, found, known, voted)

    def _entanglement(
        self, found: Tensor, *, k: int, groups: Indices | None, names: Sequence[str] | None
    ) -> Entanglement:
        labels = as_groups(self.samples.labels())
        return entanglement(found, self.forget, labels, k=k, groups=labels if groups is None else groups, names=names)


def _warn_if_few(count: int, knob: str) -> None:
    if count < FEW_ADJACENT:
        warnings.warn(
            f"Only {count} adjacent samples were found, which is little to repair neighbours with. Raise {knob}, or "
            "name adjacent data yourself (Split.where).",
            RunWarning,
            stacklevel=3,
        )


def _features(
    model: nn.Module | None,
    samples: Samples,
    given: Tensor | np.ndarray[Any, Any] | None,
    device: str | torch.device | None,
) -> Tensor:
    if given is not None:
        try:
            found = torch.as_tensor(given).detach()
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise UsageError(f"features must be numbers, one row per sample, not {short(given)}.") from error
        if found.is_meta or found.layout != torch.strided or found.is_complex():
            raise UsageError("features must be a dense tensor of real numbers with values.")
        found = found.float()
        if found.ndim != 2 or len(found) != len(samples):
            raise UsageError(f"features must have one row for each of the {len(samples)} samples.")
        if not found.isfinite().all():
            first = int((~found.isfinite().all(dim=1)).nonzero()[0])
            raise UsageError(f"features must be finite, but those of sample {first} are not.")
        return found
    if model is None:
        raise UsageError("Neighbours need a model (model=) or its features (features=).")
    require_type("model", model, nn.Module, "a torch nn.Module")
    return features(model, samples, torch.arange(len(samples)), device=device)
