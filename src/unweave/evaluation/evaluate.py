"""The one entrance to every question that can be asked of a model and a split."""

from __future__ import annotations

import torch
from torch import nn

from unweave.evaluation.accuracy import accuracy_and_losses
from unweave.evaluation.predictions import predict
from unweave.evaluation.scores import Scores
from unweave.split import SUBSETS, Split


def evaluate(
    model: nn.Module,
    train: Split,
    test: Split | None = None,
    *,
    batch_size: int = 512,
    device: str | torch.device | None = None,
) -> Scores:
    """Measure a model on the three subsets of the training data and, if given, of test data.

    >>> data = (torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> scores = evaluate(nn.Linear(4, 2), Split(data, forget=[0], adjacent=[1], remote=[2, 3]))
    >>> scores["train"]["remote"]["samples"]
    2
    """
    values = {}
    for part, split in (("train", train), ("test", test)):
        if split is not None:
            values[part] = {
                subset: accuracy_and_losses(
                    predict(model, split.samples, split.rows(subset), batch_size=batch_size, device=device)
                )
                for subset in SUBSETS
            }
    return Scores(values)
