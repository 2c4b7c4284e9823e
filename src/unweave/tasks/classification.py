"""Classification: logits over two or more classes; the right class is on top.

ℓ = −log p_y,    m = log((1 − p_y) / p_y),    a recognised sample has p_y ≥ 1/n, so ℓ ≤ log n and m < log n
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor, nn

from unweave.data import Data, class_labels, labels_of, require_known_labels
from unweave.errors import UsageError
from unweave.tasks.choices import all_right, entropies, margins_against, odds_against
from unweave.tasks.raw import explained, require_batch
from unweave.tasks.task import Task

Loss: TypeAlias = Callable[[nn.Module, Data], Tensor]


class Classification(Task):
    """One of several classes: logits of shape (samples, classes), labels from 0 on.

    >>> import torch
    >>> task = Classification()
    >>> logits, labels = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    >>> task.recognised(logits, labels).tolist()
    [True, False]
    """

    name = "classification"

    def read(self, raw: Tensor) -> Tensor:
        """Take logits of shape (samples, classes)."""
        if raw.ndim != 2:
            raise UsageError(
                "The model must return logits of shape (samples, classes), or an object with such .logits; it "
                f"returned Tensor of shape {tuple(raw.shape)}."
            )
        return raw

    def labels(self, labels: Tensor) -> Tensor:
        """Take one whole number per sample."""
        if labels.is_floating_point() or labels.ndim != 1:
            raise UsageError(
                f"Classification needs one whole number per sample as its label, not {labels.dtype} of shape "
                f"{tuple(labels.shape)}. {_fitting(labels)}"
            )
        return class_labels(labels)

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of every sample."""
        return entropies(outputs, labels)

    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return log((1 − p) / p), p the probability of the label."""
        return odds_against(outputs, labels)

    def margins(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the largest other logit minus the label's; of several labels the largest, as one wrong is enough."""
        found = margins_against(outputs, labels)
        return found if found.ndim == 1 else found.amax(dim=1)

    def recognised(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return whether the right class is on top."""
        return all_right(outputs, labels)

    def chance(self, outputs: Tensor) -> float:
        """Return 1/n; with several labels, the product over them."""
        return float(outputs.shape[-1] ** -math.prod(outputs.shape[1:-1]))

    def limit(self, outputs: Tensor) -> float:
        """Return log n: the class on top has a probability of at least 1/n."""
        return math.log(outputs.shape[-1])

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Refuse labels beyond the last class."""
        require_known_labels(self.labels(labels), rows, outputs.shape[-1])


def _fitting(labels: Tensor) -> str:
    """Say which task takes labels that are no classes."""
    if labels.ndim == 2 and bool(((labels == 0) | (labels == 1)).all()):
        return "Labels of 0 and 1, several for each sample, are those of task='multi-label'."
    if labels.ndim in (1, 2):
        return "If they are quantities to predict, use task='regression'; otherwise convert them to whole numbers."
    return "For other labels use task=uw.OwnLoss(loss)."


CLASSIFICATION = Classification()


def logits(model: nn.Module, data: Data) -> Tensor:
    """Run a classifier on a batch.

    Args:
        model: The classifier. It returns logits, or an object with ``.logits`` as Hugging Face models do.
        data: A pair (inputs, labels), or a mapping that is passed by keyword without its labels.

    Returns:
        One row of logits per sample, in float32 or better.

    Raises:
        UsageError: The model cannot take the inputs, or does not return logits.

    >>> import torch
    >>> logits(nn.Linear(2, 3), (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))).shape
    torch.Size([4, 3])
    """
    return CLASSIFICATION.read(explained(model, data))


def cross_entropy(model: nn.Module, data: Data) -> Tensor:
    """Compute the cross-entropy of every sample: ℓ(f_θ(x), y).

    Args:
        model: A classifier.
        data: A pair (inputs, labels), or a mapping with ``"labels"``.

    Returns:
        One loss per sample.

    Raises:
        UsageError: The model or the labels are not those of a classifier.

    >>> import torch
    >>> cross_entropy(nn.Linear(2, 3), (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))).shape
    torch.Size([4])
    """
    require_batch(model, data)
    return CLASSIFICATION.losses(logits(model, data), CLASSIFICATION.labels(labels_of(data)))


def log_odds(model: nn.Module, data: Data) -> Tensor:
    """Compute m = log((1 − p) / p) of every sample, p the probability of its label: the log-odds against it.

    The cross-entropy is log(1 + eᵐ). Where the model is sure, loss and gradient end at 0; the log-odds go on.

    Args:
        model: A classifier.
        data: A pair (inputs, labels), or a mapping with ``"labels"``.

    Returns:
        One number per sample.

    Raises:
        UsageError: The model or the labels are not those of a classifier.

    >>> import torch
    >>> sure, wrong = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([[0.0, 8.0, 0.0]])
    >>> [round(log_odds(nn.Identity(), (scores, torch.tensor([0]))).item(), 2) for scores in (sure, wrong)]
    [-19.31, 8.0]
    """
    return odds_against(logits(model, data), class_labels(labels_of(data)))
