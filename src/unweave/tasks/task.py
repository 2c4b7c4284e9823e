"""What a sample is to a model: the one place that knows what outputs and labels mean.

Methods, the guard, scores, records and audits ask the task, and so serve every kind of model. Per-sample losses stay
the currency: a task turns outputs and labels into one number per sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from unweave.data import Data, Samples, labels_of, plain_labels
from unweave.tasks.raw import explained, raw_outputs


class Task(ABC):
    """A kind of model. Subclasses say what outputs and labels mean.

    *Outputs* have one row per sample. A task *with choices* has logits: the last dimension runs over the classes, and
    a dimension before it, if there is one, over the labels of a sample. Every number about a sample is a mean over its
    labels.

    Attributes:
        name: What ``task=`` and the configuration on record call it.
        correct: What a recognised sample is called for people.
        has_choices: Whether outputs are logits over classes, so that probabilities exist.
        has_tokens: Whether a sample is a text, so that methods may ask for its tokens' log-probabilities.
        independent: Whether the loss of a sample is the same in whatever batch it is.
        bounded: Whether `limit` bounds the losses of recognised samples.

    >>> from unweave.tasks import Classification
    >>> class FirstOf(Classification):
    ...     "A classifier that returns several tensors, logits first."
    ...     def outputs(self, model, data):
    ...         return self.read(model(data[0])[0])
    """

    name: ClassVar[str]
    correct: ClassVar[str] = "accuracy"
    has_choices: ClassVar[bool] = True
    has_tokens: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    bounded: ClassVar[bool] = True

    def outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Run the model on a batch; return its outputs in the form of this task, one row per sample."""
        return self.read(raw_outputs(model, data))

    def tried_outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Run the model like `outputs`; raise a `UsageError` that names the inputs where it cannot take them."""
        return self.read(explained(model, data))

    @abstractmethod
    def read(self, raw: Tensor) -> Tensor:
        """Return the model's tensor as outputs of this task, or raise a `UsageError`."""

    @abstractmethod
    def labels(self, labels: Tensor) -> Tensor:
        """Return the labels of a batch in the form that the losses need, or raise a `UsageError`."""

    @abstractmethod
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return one loss per sample."""

    @abstractmethod
    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the log-odds against its label of every sample; the losses where there are no probabilities.

        The loss is log(1 + eᵐ), m the log-odds: of a sample that the model gets wrong it is hardly more than m. Of a
        sample that the model is sure about, the loss and its gradient end at 0, and the log-odds go on.
        """

    def margins(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return how far every sample is from being recognised: a number above 0 means that it is not.

        Where this is known of losses only, it is how far the log-odds lie above `limit`.
        """
        return self.odds(outputs, labels) - self.limit(outputs)

    @abstractmethod
    def recognised(self, outputs: Tensor, labels: Tensor) -> Tensor | None:
        """Return whether each sample counts as recognised; None where the task cannot tell."""

    def chance(self, outputs: Tensor) -> float:
        """Return the share of samples that a model which knows nothing recognises; 0 if it is not known."""
        return 0.0

    @abstractmethod
    def limit(self, outputs: Tensor) -> float:
        """Return the number that loss and log-odds of a recognised sample never exceed; 0 if it is not known."""

    @abstractmethod
    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Raise a `UsageError` for labels that the model has no output for. ``outputs`` are those of any sample."""

    def label_rows(self, data: Data) -> Tensor:
        """Return the labels of a batch with as many columns in every batch."""
        return plain_labels(labels_of(data))

    def require_samples(self, model: nn.Module, samples: Samples, rows: Tensor) -> None:  # noqa: B027
        """Raise a `UsageError`, before the model runs, for samples that it cannot take."""

    def batch_losses(self, model: nn.Module, data: Data) -> Tensor:
        """Return the loss of every sample of a batch, with gradient where gradients are on."""
        return self.losses(self.outputs(model, data), self.labels(labels_of(data)))

    def batch_odds(self, model: nn.Module, data: Data) -> Tensor:
        """Return the log-odds of every sample of a batch, with gradient where gradients are on."""
        return self.odds(self.outputs(model, data), self.labels(labels_of(data)))

    def batch_margins(self, model: nn.Module, data: Data) -> Tensor:
        """Return the margin of every sample of a batch, with gradient where gradients are on."""
        return self.margins(self.outputs(model, data), self.labels(labels_of(data)))

    def classes(self, outputs: Tensor) -> int | None:
        """Return how many classes each label chooses from; None without choices."""
        return outputs.shape[-1] if self.has_choices else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
