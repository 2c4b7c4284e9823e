"""What a model says about samples: its logits, kept once, so that one forward pass serves every metric."""

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

from unweave.data import SUBSETS, Partition, Samples
from unweave.engine import Forward
from unweave.errors import RunError, UsageError
from unweave.runtime import Precision, pick_device, reading, resolve_precision
from unweave.tasks import CLASSIFICATION, Task, find_task

T = TypeVar("T")
NOT_TOLD = "The task has no rule for which samples are recognised: give OwnLoss(loss, recognised=...)."


@dataclass(frozen=True)
class Predictions:
    """Outputs and labels of some samples, on the CPU, and the task that says what they mean.

    ``logits`` are the task's outputs: of a task with choices one row of logits per sample or, with several labels per
    sample, one for each label. Every number about a sample is a mean over its labels.
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
        """How many classes each label chooses from; 0 where the task has none."""
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
        """Whether each sample is recognised; None where the task cannot tell."""
        return self.task.recognised(self.logits, self.labels)

    @property
    def correct(self) -> Tensor:
        """Whether each sample is recognised, where the task can tell."""
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
        """A mask of the right classes, in the shape of the logits."""
        return functional.one_hot(self.labels, self.classes).bool()

    def of_labels(self, values: Tensor) -> Tensor:
        """Return the values of the right classes: one per sample, a mean over its labels."""
        return mean_over_labels(values.gather(-1, self.labels[..., None])[..., 0])

    @cached_property
    def margins(self) -> Tensor:
        """log(p_y / (1 − p_y)) of every sample, from the logits, so that it stays exact where p_y is near 1.

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
    """Return the samples of several subsets as one; empty subsets count for nothing."""
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
    task: Task | str | None = None,
) -> Observed:
    """Run the model once on everything."""
    where = pick_device(device)
    task = find_task(task, model, train.samples, train.rows(*train.names), where)
    parts: dict[str, Mapping[str, Predictions]] = {}
    with reading(model, where):  # here already, so that the model travels once for both parts
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
                task=task,
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
        task: Task | str | None = None,
    ) -> None:
        self.train, self.test = train, test
        self.how: dict[str, Any] = {"batch_size": batch_size, "device": device, "precision": precision, "task": task}
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
    task: Task | str | None = None,
) -> Predictions:
    """Run the model, in evaluation mode, on the samples at these positions. The model is left as it was.

    ``batch_size=None`` takes what suits the device; it is halved where memory is too small. ``precision`` ``auto``
    is bfloat16 on CUDA, with the last linear layer in float32, and float32 elsewhere. Several processes divide the
    samples among them, and all get every prediction. ``task=None`` finds the task from outputs and labels.
    """
    where = pick_device(device)
    if len(rows) == 0:
        return Predictions(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    found = find_task(task, model, samples, rows, where)
    forward = Forward(device=where, precision=resolve_precision(precision, where))
    outputs, labels = (
        some.cpu() for some in forward.rows(found.tried_outputs, model, samples, rows, batch_size=batch_size)
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
    """Return a random choice of at most ``count`` samples."""
    if len(predictions) <= count:
        return predictions
    return predictions[torch.from_numpy(np.sort(generator.permutation(len(predictions))[:count]))]


def array(values: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a tensor as an array in double precision."""
    found: np.ndarray[Any, np.dtype[np.float64]] = values.double().numpy()
    return found
