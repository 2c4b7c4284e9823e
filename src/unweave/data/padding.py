"""Cut the padding of token batches to the longest sentence of the batch, or of each of its pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from unweave.data.labels import Data
from unweave.data.trees import form_of, map_tensors, shapes, to_device
from unweave.runtime import reading

if TYPE_CHECKING:
    from unweave.data.samples import Samples

MASK = "attention_mask"
TOKENS = (MASK, "input_ids", "token_type_ids", "position_ids", "special_tokens_mask")  # one column for each token
Length = TypeVar("Length", int, Tensor)
FEW = 16  # samples to choose the shortest from, for the check
ROUNDING = 1e-3  # tolerance in float32; its square root for lower precision
_TRIED: WeakKeyDictionary[Any, WeakKeyDictionary[nn.Module, bool]] = WeakKeyDictionary()  # by samples and model
MULTIPLE = 16  # lengths are rounded up: kernels run faster, and compiled code sees fewer shapes


def token_lengths(data: Any) -> Tensor | None:
    """Return the length of every sample up to its last token, or None without an attention mask.

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

    Nothing is cut if an entry other than tokens is as wide as the attention mask: it may be a table of numbers.
    Some columns remain even if no sample has a token.

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
    """Split a batch by sentence length: places in the batch, and a piece with less padding.

    The list is empty if this saves fewer than ``worth`` tokens, or if nothing may be cut.

    >>> mask = (torch.arange(40) < torch.tensor([[40], [3], [16]])).long()
    >>> [(places.tolist(), piece["attention_mask"].shape[1]) for places, piece in by_length({MASK: mask}, worth=48)]
    [([1, 2], 16), ([0], 40)]
    >>> by_length({MASK: mask}, worth=49)
    []
    """
    lengths = token_lengths(data)
    if lengths is None or form_of(data, len(lengths)) is None:
        return []
    width = data[MASK].shape[1]
    widths = _rounded(lengths.clamp(min=1)).clamp(max=width)
    if (width - widths).sum() < worth or shapes(trimmed(data, int(widths.min()))) == shapes(data):
        return []
    every = [(widths == one).nonzero()[:, 0] for one in widths.unique()]
    return [(some, trimmed(map_tensors(itemgetter(some), data), int(lengths[some].max()))) for some in every]


def _rounded(length: Length) -> Length:
    return -(-length // MULTIPLE) * MULTIPLE


def may_cut(
    samples: Samples, model: nn.Module, run: Callable[[nn.Module, Data], Tensor], rows: Tensor, device: torch.device
) -> bool:
    """Check whether a model gives the same outputs without padding, so that batches may be cut to the longest sentence.

    Some models ignore the attention mask, so each model is checked once on one sample. ``run`` returns the model's
    outputs for a batch. A user's ``samples.cut_padding`` overrides the check.
    """
    if samples.cut_padding is not None or len(rows) == 0:
        return bool(samples.cut_padding)
    known = _TRIED.setdefault(samples, WeakKeyDictionary())
    if model not in known:
        with reading(model, device):
            length, whole = _shortest(samples, rows.cpu())
            cut = whole if length is None else trimmed(whole, length)
            agrees = shapes(whole) == shapes(cut) or _agree(
                lambda data: run(model, to_device(data, device)), whole, cut
            )
        known[model] = agrees
    return known[model]


def _shortest(samples: Samples, rows: Tensor) -> tuple[int | None, Data]:
    """Return length and batch of the shortest of a few samples, or None and the first sample without tokens."""
    first = samples.read(rows[:1])
    if token_lengths(first) is None:
        return None, first
    some = rows[torch.linspace(0, len(rows) - 1, min(FEW, len(rows))).long()]
    batches = [samples.read(row[None]) for row in some]
    lengths = [token_lengths(batch) for batch in batches]
    return min(((int(n), batch) for n, batch in zip(lengths, batches, strict=True) if n is not None), key=itemgetter(0))


def _agree(run: Callable[[Any], Any], whole: Any, cut: Any) -> bool:
    """Check whether a model gives the same output with and without padding, up to rounding.

    Returns False if the model or its loss raises, for example because the loss needs several samples.
    """
    try:
        said, again = run(whole), run(cut)
    except Exception:  # a model of fixed length, or any error of a user's loss
        return False
    if not isinstance(said, Tensor) or not isinstance(again, Tensor) or said.shape != again.shape:
        return False
    rounding = ROUNDING if said.dtype in (torch.float32, torch.float64) else ROUNDING**0.5
    return torch.allclose(said.float(), again.float(), rtol=rounding, atol=rounding)
