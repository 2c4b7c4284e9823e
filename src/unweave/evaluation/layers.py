"""What a model makes of samples at several depths, from the input to the outputs, as short rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import Data, Samples, labels_of, tensors_of
from unweave.engine import Forward
from unweave.errors import UsageError
from unweave.runtime import Precision, pick_device, reading, resolve_precision
from unweave.tasks import explained

MASK, TOKENS = "attention_mask", "input_ids"
MOST = 8  # layers that are looked at
LONGEST = 512  # numbers that are kept of a sample at one depth
WIDEST = 8_192  # numbers of a row from which the short one is made
FEW = 13  # samples that show the order of the layers; a prime, so that nothing else has this length
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def layer_features(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    most: int = MOST,
    batch_size: int = 256,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
) -> list[Tensor]:
    """Return features at several depths, from the input to the outputs, each with one row per sample, on the CPU.

    Images are made small and sequences are averaged, so that each row has about 500 numbers at most. The input comes
    first: numbers as they are, tokens as a count of each. The list is empty if no layer gives a row for each sample.

    Raises:
        UsageError: Features are not finite, or differ in length between samples.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> found = layer_features(model, Samples((torch.randn(5, 4), torch.zeros(5, dtype=torch.long))), torch.arange(5))
    >>> [part.shape[1] for part in found]
    [4, 3, 2]
    """
    where = pick_device(device)
    forward = Forward(device=where, precision=resolve_precision(precision, where))
    with reading(model, where):
        samples.keep(rows[:FEW], where)
        layers = _layers(model, samples.batch(rows[:FEW], where).data, most)
    if not layers:
        return []
    widths: list[int] = []

    def read(model: nn.Module, data: Data) -> Tensor:
        found: dict[nn.Module, Tensor] = {}
        with _watched(layers, lambda layer, output: found.setdefault(layer, _short(layer, output, data))):
            explained(model, data)
        parts = [*_input(data), *(found[layer] for layer in layers if layer in found)]
        here = [part.shape[1] for part in parts]
        if widths and here != widths:
            raise UsageError(
                f"The model's layers give rows of {widths} numbers for some samples, of {here} for others."
            )
        widths[:] = here
        return torch.cat(parts, dim=1)

    every = forward.rows(read, model, samples, rows, batch_size=batch_size)[0].cpu()
    if not every.isfinite().all():
        raise UsageError("The model's features contain NaN or infinite values. Check its weights and the data.")
    return list(every.split(widths, dim=1))


def _layers(model: nn.Module, data: Data, most: int) -> list[nn.Module]:
    """Return some layers with weights, evenly chosen in the order in which they are run; the last is among them."""
    order: dict[nn.Module, None] = {}
    count = len(labels_of(data))

    def note(layer: nn.Module, output: Tensor) -> None:
        if output.ndim > 1 and len(output) == count and output.is_floating_point():
            order[layer] = None

    own = [
        layer
        for layer in model.modules()
        if not list(layer.children()) and list(layer.parameters(recurse=False)) and not isinstance(layer, NORMS)
    ]
    with _watched(own, note):
        explained(model, data)
    every = list(order)
    if not every:
        return []
    return [every[place] for place in torch.linspace(0, len(every) - 1, min(most, len(every))).round().long().tolist()]


@contextmanager
def _watched(layers: Sequence[nn.Module], note: Callable[[nn.Module, Tensor], Any]) -> Iterator[None]:
    """Call ``note`` with what each of the layers returns; of several outputs, with the first."""

    def look(layer: nn.Module, _: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, Tensor):
            note(layer, first.detach())

    hooks = [layer.register_forward_hook(look) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _input(data: Data) -> list[Tensor]:
    """Return the input in a short form, if it is one tensor, or the tokens of a text."""
    if isinstance(data, Mapping) and isinstance(data.get(TOKENS), Tensor):
        return [_counts(data[TOKENS], data.get(MASK))]
    inputs = [tensor for tensor in tensors_of(data) if tensor is not labels_of(data)]
    if len(inputs) != 1 or inputs[0].ndim < 2:
        return []
    if inputs[0].is_floating_point():
        return [_short(None, inputs[0], data)]
    return [_counts(inputs[0], None)] if inputs[0].ndim == 2 else []


def _counts(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return how often each token is in each text, as a row of length 1; a hash makes rows short. 0 is padding."""
    there = tokens != 0 if mask is None else mask != 0
    found = torch.zeros(len(tokens), LONGEST, device=tokens.device)
    found.scatter_add_(1, tokens.long() % LONGEST, there.float())
    return functional.normalize(found)


def _short(layer: nn.Module | None, output: Tensor, data: Data) -> Tensor:
    """Return an output with one short row for each sample."""
    output = output.float()
    if output.ndim >= 4:
        output = output.flatten(2, -2)
        side = max(1, int((LONGEST / output.shape[1]) ** 0.5))
        output = functional.adaptive_avg_pool2d(output, (min(side, output.shape[2]), min(side, output.shape[3])))
    elif isinstance(layer, nn.Conv1d):
        output = functional.adaptive_avg_pool1d(output, max(1, LONGEST // output.shape[1]))
    elif output.ndim == 3:
        output = _mean_of_tokens(output, data)
    output = output.flatten(1)
    if output.shape[1] > WIDEST:
        output = functional.adaptive_avg_pool1d(output, WIDEST)
    if output.shape[1] <= LONGEST:
        return output
    draw = torch.Generator().manual_seed(0)  # a random projection keeps distances
    onto = torch.randn(output.shape[1], LONGEST, generator=draw).to(output.device)
    return output @ onto / float(LONGEST**0.5)


def _mean_of_tokens(output: Tensor, data: Data) -> Tensor:
    mask = data.get(MASK) if isinstance(data, Mapping) else None
    if mask is None or mask.shape != output.shape[:2]:
        return output.mean(dim=1)
    there = (mask != 0).to(output.dtype)[..., None]
    mean: Tensor = (output * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
    return mean
