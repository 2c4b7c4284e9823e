"""Padding of token batches: cut to the longest sentence of the batch, or of each of its pieces."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

from unweave.data.trees import has_one_each, map_tensors, shapes

MASK = "attention_mask"
TOKENS = (MASK, "input_ids", "token_type_ids", "position_ids", "special_tokens_mask")  # one column for each token
Length = TypeVar("Length", int, Tensor)
MULTIPLE = 16  # lengths are rounded up: kernels like it, and compiled code sees few shapes


def token_lengths(data: Any) -> Tensor | None:
    """Return the place after the last token of every sample, or None where there is no attention mask.

    >>> token_lengths({"attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]]), "labels": torch.tensor([0, 1])})
    tensor([2, 1])
    """
    mask = data.get(MASK) if isinstance(data, Mapping) else None
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[1] == 0:
        return None
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return ((mask != 0) * places).amax(dim=1).cpu()


def trimmed(data: Any, longest: int) -> Any:
    """Return a batch without the columns that are padding in every sample, given the longest sample's length.

    Where something else than tokens is as wide as the attention mask, nothing is cut: it may be a table of numbers.
    Some columns are left even where no sample has a token.

    >>> trimmed({"attention_mask": torch.ones(1, 40), "labels": torch.ones(1)}, 17)["attention_mask"].shape
    torch.Size([1, 32])
    """
    width = data[MASK].shape[1]
    cut = min(width, _rounded(max(longest, 1)))

    def is_wide(value: Any) -> bool:
        return isinstance(value, Tensor) and value.ndim >= 2 and value.shape[1] == width

    wide = {name for name, value in data.items() if is_wide(value) and name != "labels"}
    if not wide <= set(TOKENS):
        return data
    return {name: value[:, :cut] if name in wide else value for name, value in data.items()}


def by_length(data: Any, *, worth: float) -> list[tuple[Tensor, Any]]:
    """Take a batch apart by the lengths of its sentences: places in the batch, and a piece without their padding.

    Nothing comes back where fewer tokens than it is ``worth`` would be spared, or none may be cut.

    >>> mask = (torch.arange(40) < torch.tensor([[40], [3], [16]])).long()
    >>> [(places.tolist(), piece["attention_mask"].shape[1]) for places, piece in by_length({MASK: mask}, worth=48)]
    [([1, 2], 16), ([0], 40)]
    >>> by_length({MASK: mask}, worth=49)
    []
    """
    lengths = token_lengths(data)
    if lengths is None or not has_one_each(data, len(lengths)):
        return []
    width = data[MASK].shape[1]
    widths = _rounded(lengths.clamp(min=1)).clamp(max=width)
    if (width - widths).sum() < worth or shapes(trimmed(data, int(widths.min()))) == shapes(data):
        return []
    every = [(widths == one).nonzero()[:, 0] for one in widths.unique()]
    return [(some, trimmed(map_tensors(itemgetter(some), data), int(lengths[some].max()))) for some in every]


def _rounded(length: Length) -> Length:
    return -(-length // MULTIPLE) * MULTIPLE
