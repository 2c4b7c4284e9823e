"""A model's predictions on samples. The logits are kept, so one forward pass serves every metric."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import SUBSETS, KeepData, Partition, Samples
from unweave.engine import Forward
from unweave.errors import RunError, UsageError
from unweave.runtime import Precision, pick_device, reading, resolve_precision
from unweave.tasks import CLASSIFICATION, Task, find_task

T = TypeVar("T")
NOT_TOLD = "The task does not define which samples are recognised. Use OwnLoss(loss, recognised=...)."


@dataclass(frozen=True)
class Predictions:
    """Outputs and labels of samples, on the CPU, and the task that interprets them.

    ``logits`` are the task's outputs. A task with choices has one row of logits per sample or, with several labels per
    sample, one row per label. Every number for a sample is a mean over its labels.
    """

    logits: Tensor
    labels: Tensor
    task: Task = CLASSIFICATION

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> Predictions:
        """Return the samples at these places (indices, a mask or a slice)."""
        return Predictions(self.logits[rows], self.labels[rows], self.task)

    @property
    def classes(self) -> int:
        """The number of classes of a label; 0 if the task has none."""
        return self.task.classes(self.logits) or 0

    @property
    def has_probabilities(self) -> bool:
        """Whether the outputs are logits over classes."""
        return self.task.has_choices

    @cached_property
    def losses(self) -> Tensor:
        """The loss of every sample."""
        return self.task.losses(self.logits, self.labels)

    @cached_property
    def recognised(self) -> Tensor | None:
        """Whether each sample is recognised; None if the task does not define it."""
        return self.task.recognised(self.logits, self.labels)

    @property
    def correct(self) -> Tensor:
        """Whether each sample is recognised. Raises `UsageError` if the task does not define it."""
        if self.recognised is None:
            raise UsageError(NOT_TOLD)
        return self.recognised

    @cached_property
    def log_probabilities(self) -> Tensor:
        """The log-probability of every class, in double precision."""
        return functional.log_softmax(self.logits.double(), dim=-1)

    @cached_property
    def probabilities(self) -> Tensor:
        """The probability of every class, in double precision."""
        return self.log_probabilities.exp()

    @cached_property
    def own(self) -> Tensor:
        """A mask of the true classes, in the shape of the logits."""
        return functional.one_hot(self.labels, self.classes).bool()

    def of_labels(self, values: Tensor) -> Tensor:
        """Return the values of the true classes: one per sample, a mean over its labels."""
        return mean_over_labels(values.gather(-1, self.labels[..., None])[..., 0])

    @cached_property
    def margins(self) -> Tensor:
        """log(p_y / (1 − p_y)) of every sample, computed from the logits to stay exact for p_y near 1.

        >>> Predictions(torch.tensor([[3.0, 1.0]]), torch.tensor([0])).margins
        tensor([2.], dtype=torch.float64)
        """
        scores = self.logits.double()
        own = scores.gather(-1, self.labels[..., None])[..., 0]
        return mean_over_labels(own - scores.masked_fill(self.own, -torch.inf).logsumexp(dim=-1))


def mean_over_labels(values: Tensor) -> Tensor:
    """Return one number per sample from one per label."""
    return values if values.ndim == 1 else values.flatten(1).mean(dim=1)


def joined(*some: Predictions) -> Predictions:
    """Return the samples of several subsets as one. Empty subsets are skipped."""
    there = [predictions for predictions in some if len(predictions)]
    if not there:
        return some[0]
    return Predictions(torch.cat([p.logits for p in there]), torch.cat([p.labels for p in there]), there[0].task)


@dataclass(frozen=True, eq=False)
class Observed:
    """A model's predictions on every subset of the training data and, if given, of the test data."""

    parts: Mapping[str, Mapping[str, Predictions]]
    _answers: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, part: str, *subsets: str) -> Predictions:
        """Return one subset, or several as one."""
        return joined(*(self.parts[part][subset] for subset in subsets or SUBSETS))

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return the cached answer to a question; compute it the first time."""
        if question not in self._answers:
            self._answers[question] = answer()
        found: T = self._answers[question]
        return found

    def every_other(self, first: int) -> Observed:
        """Return half of the samples of every subset: even positions for ``first=0``, odd ones for ``first=1``."""
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
    keep_data: KeepData = "auto",
    task: Task | str | None = None,
) -> Observed:
    """Run the model once on all data."""
    where = pick_device(device)
    task = find_task(task, model, train.samples, train.rows(*train.names), where)
    parts: dict[str, Mapping[str, Predictions]] = {}
    with reading(model, where):  # here, so that the model is moved once for both parts
        for part, split in (("train", train), ("test", test)):
            if split is None:
                continue
            rows = [split.rows(subset) for subset in split.names]
            every = predict(
                model,
                split.samples,
                torch.cat(rows),
                batch_size=batch_size,
                device=where,
                precision=precision,
                keep_data=keep_data,
                task=task,
            )
            ends = [0, *accumulate(map(len, rows))]
            places = zip(split.names, pairwise(ends), strict=True)
            parts[part] = {subset: every[slice(*place)] for subset, place in places}
    return Observed(parts)


class Look:
    """Runs each model once on the data, and caches its predictions as long as the model exists.

    Use it to evaluate many models against the same references. A model must not change between two calls.
    """

    def __init__(
        self,
        train: Partition,
        test: Partition | None = None,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
        keep_data: KeepData = "auto",
        task: Task | str | None = None,
    ) -> None:
        self.train, self.test = train, test
        self.how: dict[str, Any] = {
            "batch_size": batch_size,
            "device": device,
            "precision": precision,
            "keep_data": keep_data,
            "task": task,
        }
        self._seen: WeakKeyDictionary[nn.Module, Observed] = WeakKeyDictionary()

    def __call__(self, model: nn.Module) -> Observed:
        """Return the model's predictions."""
        if model not in self._seen:
            self._seen[model] = observe(model, self.train, self.test, **self.how)
        return self._seen[model]

    def remember(self, model: nn.Module, observed: Observed) -> None:
        """Cache predictions of a model that were computed elsewhere."""
        self._seen[model] = observed


def predict(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
    keep_data: KeepData = "auto",
    task: Task | str | None = None,
) -> Predictions:
    """Run the model in evaluation mode on the samples at these positions. The model is not changed.

    ``batch_size=None`` chooses a size for the device, and halves it if memory runs out. ``precision`` ``auto`` is
    bfloat16 on CUDA, with the last linear layer in float32, and float32 elsewhere. Several processes share the samples,
    and each gets every prediction. ``task=None`` infers the task from outputs and labels.
    """
    where = pick_device(device)
    if len(rows) == 0:
        return Predictions(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    found = find_task(task, model, samples, rows, where)
    forward = Forward(device=where, precision=resolve_precision(precision, where), keep_data=keep_data)
    outputs, labels = (
        some.cpu()
        for some in forward.rows(
            found.tried_outputs, model, samples, rows, batch_size=batch_size, labels=found.label_rows
        )
    )
    found.require_labels(labels, rows, outputs)
    bad = ~outputs.flatten(1).isfinite().all(dim=1)
    if bad.any():
        raise RunError(
            f"The model's output is not finite for {int(bad.sum())} samples (first: sample "
            f"{int(rows[bad.nonzero()[0]])}). Check its weights and the data."
        )
    return Predictions(outputs, found.labels(labels), found)


def some_of(predictions: Predictions, count: int, generator: np.random.Generator) -> Predictions:
    """Return at most ``count`` samples, chosen at random."""
    if len(predictions) <= count:
        return predictions
    return predictions[torch.from_numpy(np.sort(generator.permutation(len(predictions))[:count]))]


def array(values: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a tensor as an array in double precision."""
    found: np.ndarray[Any, np.dtype[np.float64]] = values.double().numpy()
    return found
