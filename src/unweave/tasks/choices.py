"""Numbers of samples whose labels are choices between classes: tensors in, one number per sample out.

The last dimension of the logits runs over the classes. A dimension before it runs over the labels of a sample; numbers
are means over it.

>>> logits, labels = torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]), torch.tensor([[1, 0]])  # a sample with two labels
>>> entropies(logits, labels)
tensor([0.2201])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

SURE = -15.0  # log-odds below which log(1 + eᵐ) is eᵐ in float32


def entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every sample."""
    if logits.ndim == 2:
        return functional.cross_entropy(logits, labels, reduction="none")
    return functional.cross_entropy(logits.transpose(1, -1), labels, reduction="none").mean(dim=1)


def odds_against(logits: Tensor, labels: Tensor) -> Tensor:
    """Return m = log((1 − p) / p) of every label, p its probability, from the logits.

    >>> sure, wrong = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([[0.0, 8.0, 0.0]])
    >>> [round(odds_against(logits, torch.tensor([0])).item(), 2) for logits in (sure, wrong)]
    [-19.31, 8.0]
    """
    own = labels[..., None] == torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(own, -torch.inf).logsumexp(dim=-1) - logits.masked_fill(~own, 0).sum(dim=-1)


def margins_against(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest other logit minus that of the label, for every label.

    >>> margins_against(torch.tensor([[5.0, 3.0, 0.0], [0.0, 3.0, 5.0]]), torch.tensor([0, 1]))
    tensor([-2.,  2.])
    """
    own = labels[..., None] == torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(own, -torch.inf).amax(dim=-1) - logits.masked_fill(~own, 0).sum(dim=-1)


def mean_odds(odds: Tensor) -> Tensor:
    """Return the log-odds m of a sample with several labels: log(1 + eᵐ) is the mean of its labels' losses.

    Labels that the model is sure about keep a gradient, because the mean is taken of logarithms.

    >>> mean_odds(torch.tensor([[3.0, 3.0], [-40.0, -40.0]])).round(decimals=3)
    tensor([  3., -40.])
    """
    logs = torch.where(odds < SURE, odds, functional.softplus(odds.clamp(min=SURE)).log())
    log_mean = logs.logsumexp(dim=1) - math.log(odds.shape[1])
    mean = log_mean.clamp(min=SURE).exp()
    return torch.where(log_mean < SURE, log_mean, mean + torch.log(-torch.expm1(-mean)))


def all_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether each sample has the highest logit at its label, at every one of them if it has several.

    >>> all_right(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    tensor([True])
    """
    right = logits.argmax(dim=-1) == labels
    return right if right.ndim == 1 else right.all(dim=1)
