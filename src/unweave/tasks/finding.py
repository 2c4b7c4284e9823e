"""Which task a model and its data are: found from the outputs and the labels of a few samples, or named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unweave.data import Data, Samples, labels_of
from unweave.errors import UsageError, require_type, unknown
from unweave.runtime import reading
from unweave.tasks.binary import Binary
from unweave.tasks.classification import Classification
from unweave.tasks.language import Language
from unweave.tasks.multi_label import MultiLabel
from unweave.tasks.own_loss import OwnLoss
from unweave.tasks.raw import explained
from unweave.tasks.regression import Regression
from unweave.tasks.task import Task

FEW = 32  # samples whose labels tell what they mean
NAMED: dict[str, type[Task]] = {
    "binary": Binary,
    "classification": Classification,
    "language": Language,
    "multi-label": MultiLabel,
}
NAMES = (*NAMED, "regression")


def find_task(given: Task | str | None, model: nn.Module, samples: Samples, rows: Tensor, device: torch.device) -> Task:
    """Return the task that was given or named, or the one that fits outputs and labels.

    >>> data = Samples((torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])))
    >>> find_task(None, nn.Linear(3, 1), data, torch.arange(4), torch.device("cpu"))
    Binary()
    """
    if isinstance(given, Task):
        given.require_samples(model, samples, rows)
        return given
    if given is not None:
        require_type("task", given, str, "a task, or the name of one")
        if given not in NAMES:
            raise unknown("task", given, NAMES)
        if given != "regression":
            return find_task(NAMED[given](), model, samples, rows, device)
    with reading(model, device):  # samples too: a transform may draw random numbers
        one = samples.batch(rows[:1].cpu(), device)
        if given is None and is_text(one.data):
            return find_task(Language(), model, samples, rows, device)
        labels = labels_of(one.data).cpu()
        raw = explained(model, one.data)
        if given is None and _is_classifier(raw, labels):
            return Classification()
        labels = labels_of(samples.read(rows.cpu()[torch.linspace(0, len(rows) - 1, min(FEW, len(rows))).long()]))
    return Regression(tolerance=_tolerance(labels)) if given == "regression" else _found(raw, labels)


def scoring_task(task: Task, model: nn.Module, samples: Samples, rows: Tensor, device: torch.device) -> Task:
    """Return the task that scores are measured by.

    It is the task itself, except for a loss of the user's own without ``recognised``: then it is the task that fits
    outputs and labels, if there is one.
    """
    if not isinstance(task, OwnLoss) or task.tells is not None:
        return task
    try:
        return find_task(None, model, samples, rows, device)
    except UsageError:
        return task


def is_text(data: Data) -> bool:
    """Tell whether a sample is a text with a whole number as the label of each token.

    >>> is_text({"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[-100, 6]])})
    True
    """
    if not isinstance(data, Mapping) or not isinstance(ids := data.get("input_ids"), Tensor):
        return False
    labels = labels_of(data)
    return (
        labels.ndim == 2 and labels.shape == ids.shape and not labels.is_floating_point() and labels.dtype != torch.bool
    )


def _is_classifier(raw: Tensor, labels: Tensor) -> bool:
    """Tell whether a sample has several outputs and a whole number as its label, as in classification."""
    return raw.ndim == 2 and raw.shape[1] > 1 and labels.ndim == 1 and not labels.is_floating_point()


def _found(raw: Tensor, labels: Tensor) -> Task:
    """Return the task that fits one row of outputs and the labels of some samples."""
    if raw.ndim not in (1, 2) or labels.ndim not in (1, 2):
        raise UsageError(
            f"The model must return logits of shape (samples, classes), or an object with such .logits; it returned a "
            f"tensor of shape {tuple(raw.shape)} for one sample whose label has shape {tuple(labels.shape[1:])}. For "
            "anything else give task=uw.OwnLoss(loss)."
        )
    outputs = 1 if raw.ndim == 1 else raw.shape[1]
    per_sample = 1 if labels.ndim == 1 else labels.shape[1]
    is_whole = not labels.is_floating_point()
    yes_or_no = bool(((labels == 0) | (labels == 1)).all())
    if per_sample == 1 and outputs > 1:
        raise UsageError(
            f"A model with {outputs} outputs needs one integer per sample as its label, not {labels.dtype} of "
            f"shape {tuple(labels.shape)}. Convert classes to whole numbers (task='classification'), or give the "
            "model one output (task='regression')."
        )
    if outputs != per_sample:
        raise UsageError(
            f"The model gives {outputs} numbers per sample, but a sample has {per_sample} labels, so no task fits. "
            "Classification has one label and an output per class; multi-label and regression have as many outputs as "
            "labels."
        )
    if yes_or_no:
        return Binary() if outputs == 1 else MultiLabel()
    if is_whole and labels.ndim == 1 and labels.min() >= 0:
        highest = int(labels.max())
        raise UsageError(
            f"The model gives one number per sample, but labels go up to {highest}, and one logit tells only two "
            "classes apart. Give the model one output per class (task='classification'). If labels are quantities "
            "to predict, pass task='regression'."
        )
    return Regression(tolerance=_tolerance(labels))


def _tolerance(labels: Tensor) -> float:
    """Return half the standard deviation of the labels, or 1 where they are all the same."""
    spread = float(labels.double().std(correction=0)) / 2
    return spread if spread > 0 else 1.0


def describe_task(task: Task) -> dict[str, Any]:
    """Return what the configuration on record says of a task; nothing of classification, which is the usual one."""
    if type(task) is Classification:
        return {}
    if isinstance(task, Regression):
        return {"task": task.name, "tolerance": task.tolerance}
    if isinstance(task, Language):
        return {"task": task.name, "threshold": task.threshold, "by": task.by}
    loss = getattr(task, "spoken", None)
    return {"loss": loss} if loss else {"task": task.name}
