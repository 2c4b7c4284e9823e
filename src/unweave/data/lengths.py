"""Whether a model says the same of a sentence without its padding: not every model looks at the attention mask."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from unweave.data.labels import Data
from unweave.data.loading import to_device
from unweave.data.padding import token_lengths, trimmed
from unweave.data.samples import Samples
from unweave.data.trees import shapes
from unweave.runtime import reading

FEW = 16  # samples, of which the shortest is tried
ROUNDING = 1e-3  # between two ways to compute logits in float32; its root for shorter numbers


def settle_padding(
    samples: Samples,
    model: nn.Module,
    run: Callable[[nn.Module, Data], Tensor],
    rows: Tensor,
    device: torch.device,
) -> None:
    """Find out whether batches may be cut to their longest sentence, if this model was not asked before.

    ``run`` returns what the model says of a batch. Where one model needs the padding, it stays for all.
    """
    if samples.cut_padding is False or model in samples.asked or len(rows) == 0:
        return
    samples.asked.add(model)
    with reading(model, device):
        length, whole = _shortest(samples, rows.cpu())
        cut = whole if length is None else trimmed(whole, length)
        if shapes(whole) != shapes(cut):
            samples.cut_padding = _agree(lambda data: run(model, to_device(data, device)), whole, cut)


def _shortest(samples: Samples, rows: Tensor) -> tuple[int | None, Data]:
    """Return the shortest of a few samples as a batch, and its length; of what has no tokens, the first, and None."""
    first = samples.read(rows[:1])
    if token_lengths(first) is None:
        return None, first
    some = rows[torch.linspace(0, len(rows) - 1, min(FEW, len(rows))).long()]
    batches = [samples.read(row[None]) for row in some]
    lengths = [token_lengths(batch) for batch in batches]
    return min(((int(n), batch) for n, batch in zip(lengths, batches, strict=True) if n is not None), key=itemgetter(0))


def _agree(run: Callable[[Any], Any], whole: Any, cut: Any) -> bool:
    """Tell whether a model says the same of a sample with and without its padding, but for rounding.

    Where it cannot be asked, as with a loss of several samples, it is not known to.
    """
    try:
        said, again = run(whole), run(cut)
    except Exception:  # a model that wants one length, or whatever a loss of the user's raises
        return False
    if not isinstance(said, Tensor) or not isinstance(again, Tensor) or said.shape != again.shape:
        return False
    rounding = ROUNDING if said.dtype in (torch.float32, torch.float64) else ROUNDING**0.5
    return torch.allclose(said.float(), again.float(), rtol=rounding, atol=rounding)
