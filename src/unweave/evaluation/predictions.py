"""What a model says about samples: its logits, kept once, so that one forward pass serves every metric."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import SUBSETS, Batch, Partition, Samples, require_known_labels, settle_padding
from unweave.errors import RunError
from unweave.runtime import (
    Precision,
    autocast,
    channels_last,
    exact_head,
    exchange,
    fast_products,
    pick_device,
    processes,
    reading,
    resolve_precision,
)
from unweave.tasks import try_on

T = TypeVar("T")
BATCH_SIZE = {"cuda": 1024}  # of a forward pass without gradients; 512 elsewhere


@dataclass(frozen=True)
class Predictions:
    """Logits and labels of some samples, on the CPU."""

    logits: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> Predictions:
        """Return the samples at these places (indices, a mask or a slice)."""
        return Predictions(self.logits[rows], self.labels[rows])

    @property
    def classes(self) -> int:
        """How many classes the model tells apart."""
        return self.logits.shape[1]

    @cached_property
    def losses(self) -> Tensor:
        """The cross-entropy of every sample."""
        return functional.cross_entropy(self.logits, self.labels, reduction="none")

    @cached_property
    def correct(self) -> Tensor:
        """Whether each sample is predicted as its label."""
        return self.logits.argmax(dim=1) == self.labels

    @cached_property
    def log_probabilities(self) -> Tensor:
        """The log-probability of every class, in double precision."""
        return functional.log_softmax(self.logits.double(), dim=1)

    @cached_property
    def probabilities(self) -> Tensor:
        """The probability of every class, in double precision."""
        return self.log_probabilities.exp()

    @cached_property
    def margins(self) -> Tensor:
        """log(p_y / (1 − p_y)) of every sample, from the logits, so that it stays exact where p_y is near 1.

        >>> Predictions(torch.tensor([[3.0, 1.0]]), torch.tensor([0])).margins
        tensor([2.], dtype=torch.float64)
        """
        own = functional.one_hot(self.labels, self.classes).bool()
        scores = self.logits.double()
        return scores[own] - scores.masked_fill(own, -torch.inf).logsumexp(dim=1)


def joined(*some: Predictions) -> Predictions:
    """Return the samples of several subsets as one; empty subsets count for nothing."""
    there = [predictions for predictions in some if len(predictions)]
    if not there:
        return some[0]
    return Predictions(torch.cat([p.logits for p in there]), torch.cat([p.labels for p in there]))


@dataclass(frozen=True, eq=False)
class Observed:
    """A model's predictions on every subset of the training data and, if given, of the test data."""

    parts: Mapping[str, Mapping[str, Predictions]]
    _answers: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, part: str, *subsets: str) -> Predictions:
        """Return one subset, or several as one."""
        return joined(*(self.parts[part][subset] for subset in subsets or SUBSETS))

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return the answer to a question that is put more than once, found the first time."""
        if question not in self._answers:
            self._answers[question] = answer()
        found: T = self._answers[question]
        return found

    def every_other(self, first: int) -> Observed:
        """Return half of the samples of every subset: those at the even places, or from 1 on those at the odd ones."""
        return Observed(
            {
                part: {subset: found[first::2] for subset, found in subsets.items()}
                for part, subsets in self.parts.items()
            }
        )

    @property
    def has_test(self) -> bool:
        """Whether test data was given."""
        return "test" in self.parts


def observe(
    model: nn.Module,
    train: Partition,
    test: Partition | None = None,
    *,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
) -> Observed:
    """Run the model once on everything."""
    where = pick_device(device)
    parts: dict[str, Mapping[str, Predictions]] = {}
    with reading(model, where):  # here already, so that the model travels once for both parts
        for part, split in (("train", train), ("test", test)):
            if split is None:
                continue
            rows = [split.rows(subset) for subset in split.names]
            every = predict(
                model, split.samples, torch.cat(rows), batch_size=batch_size, device=where, precision=precision
            )
            ends = [0, *accumulate(map(len, rows))]
            places = zip(split.names, pairwise(ends), strict=True)
            parts[part] = {subset: every[slice(*place)] for subset, place in places}
    return Observed(parts)


class Look:
    """Runs models over the data, each of them once: what a model said is remembered as long as the model lives.

    For whoever evaluates many models beside the same few. A model must not change between two looks at it.
    """

    def __init__(
        self,
        train: Partition,
        test: Partition | None = None,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
    ) -> None:
        self.train, self.test = train, test
        self.how: dict[str, Any] = {"batch_size": batch_size, "device": device, "precision": precision}
        self._seen: WeakKeyDictionary[nn.Module, Observed] = WeakKeyDictionary()

    def __call__(self, model: nn.Module) -> Observed:
        """Return what the model says."""
        if model not in self._seen:
            self._seen[model] = observe(model, self.train, self.test, **self.how)
        return self._seen[model]

    def remember(self, model: nn.Module, observed: Observed) -> None:
        """Take down what a model said when somebody else looked."""
        self._seen[model] = observed


def predict(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
) -> Predictions:
    """Run the model, in evaluation mode, on the samples at these positions. The model is left as it was.

    ``batch_size=None`` takes what suits the device; it is halved where memory is too small. ``precision`` ``auto``
    is bfloat16 on CUDA, with the last linear layer in float32, and float32 elsewhere. Several processes divide the
    samples among them, and all get every prediction.
    """
    where = pick_device(device)
    chosen = resolve_precision(precision, where)
    if len(rows) == 0:
        return Predictions(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    part = processes.part_of(len(rows))
    mine = part.rows(rows) if part else rows
    samples.keep(mine, where)
    size = batch_size or BATCH_SIZE.get(where.type, 512)
    found, labels = [], []
    settle_padding(samples, model, try_on, rows, where)
    lengths = samples.token_lengths(where)
    # Sentences of one length together need little padding.
    order = torch.arange(len(mine)) if lengths is None else lengths[mine.cpu()].argsort(stable=True)
    mine = mine[order.to(mine.device)]
    with (
        reading(model, where),
        channels_last(model, where),
        exact_head(model, chosen),
        fast_products(where, chosen),
        autocast(where, chosen),
    ):
        done = 0
        while done < len(mine):
            try:
                for batch in _in_order(samples, mine[done:], where, size):
                    found.append(try_on(model, batch.data))  # on the device: nothing waits within the loop
                    labels.append(batch.labels)
                    done += len(batch)
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                size //= 2
                torch.cuda.empty_cache()
    back = order.argsort().to(where)
    every = [exchange.gathered(torch.cat(some)[back], part).cpu() for some in (found, labels)]
    predictions = Predictions(*every)
    require_known_labels(predictions.labels, rows, predictions.classes)
    bad = ~predictions.logits.isfinite().all(dim=1)
    if bad.any():
        raise RunError(
            f"The model's output is not finite for {int(bad.sum())} samples (first: sample "
            f"{int(rows[bad.nonzero()[0]])}). Check its weights and the data."
        )
    return predictions


def _in_order(samples: Samples, rows: Tensor, device: torch.device, size: int) -> Iterator[Batch]:
    if samples.kept(device):
        lengths = samples.token_lengths(device)
        ends = [None if lengths is None else int(lengths[some].max()) for some in rows.cpu().split(size)]
        there = rows.to(device).split(size)
        return (samples.batch(some, device, longest=end) for some, end in zip(there, ends, strict=True))
    return samples.batches(((some, None) for some in rows.cpu().split(size)), device)


def some_of(predictions: Predictions, count: int, generator: np.random.Generator) -> Predictions:
    """Return a random choice of at most ``count`` samples."""
    if len(predictions) <= count:
        return predictions
    return predictions[torch.from_numpy(np.sort(generator.permutation(len(predictions))[:count]))]


def array(values: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a tensor as an array in double precision."""
    found: np.ndarray[Any, np.dtype[np.float64]] = values.double().numpy()
    return found
