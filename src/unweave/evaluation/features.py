"""Features, used to find neighbours: the input of a model's last linear layer or, of a text, what its prompt became."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unweave.data import Data, Samples
from unweave.engine import Forward
from unweave.errors import UsageError
from unweave.evaluation.prompt_features import prompt_features
from unweave.runtime import Precision, pick_device, reading, resolve_precision
from unweave.tasks import explained, is_text

FEW = 16  # samples that identify the layer that gives the outputs


def features(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int = 256,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
) -> Tensor:
    """Return the input of the model's last linear layer, one row per sample, on the CPU.

    Of texts, it is the mean of the last block's outputs over the tokens of the prompt (see `prompt_features`).

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> features(model, Samples((torch.randn(5, 4), torch.zeros(5, dtype=torch.long))), torch.arange(5)).shape
    torch.Size([5, 3])
    """
    where = pick_device(device)
    forward = Forward(device=where, precision=resolve_precision(precision, where))
    with reading(model, where):
        text = is_text(samples.read(rows[:1].cpu()))
    if text:
        return _finite(prompt_features(model, samples, rows, forward))
    received: list[Tensor] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        received.append(inputs[0].flatten(1).float())

    def read(model: nn.Module, data: Data) -> Tensor:
        explained(model, data)
        found = received[-1]
        received.clear()
        return found

    handle = _head(model, samples, rows, where).register_forward_pre_hook(note)
    try:
        found = forward.rows(read, model, samples, rows, batch_size=batch_size)[0].cpu()
    finally:
        handle.remove()
    return _finite(found)


def _finite(found: Tensor) -> Tensor:
    if not found.isfinite().all():
        raise UsageError("The model's features contain NaN or infinite values. Check its weights and the data.")
    return found


def _head(model: nn.Module, samples: Samples, rows: Tensor, device: torch.device) -> nn.Module:
    """Return the last linear layer whose outputs become the model's outputs."""
    order: list[tuple[nn.Module, Tensor]] = []

    def note_order(module: nn.Module, _: Any, output: Tensor) -> None:
        order.append((module, output))

    linear = [m for m in model.modules() if isinstance(getattr(m, "base_layer", m), nn.Linear)]  # or with LoRA
    with reading(model, device):
        samples.keep(rows[:FEW], device)
        data = samples.batch(rows[:FEW], device).data
        hooks = [module.register_forward_hook(note_order) for module in linear]
        try:
            raw = explained(model, data)
        finally:
            for hook in hooks:
                hook.remove()
    outputs = raw.reshape(len(raw), -1)
    heads = [module for module, output in order if _leads_to(output, outputs)]
    if not heads:
        raise UsageError(
            "The model has no linear layer whose outputs are its logits, so its penultimate features are "
            "unknown. Compute features yourself and pass them as features=."
        )
    return heads[-1]


def _leads_to(output: Tensor, said: Tensor) -> bool:
    """Check whether a layer ranks the classes of every sample as the logits do.

    One position of the layer is enough. Logits may be scaled, bounded or normalised after the layer.
    """
    if output.shape[-1:] != said.shape[-1:] or output.numel() % said.numel():
        return False
    places = output.reshape(len(said), -1, said.shape[-1])
    alike = (places.argsort(dim=-1) == said.argsort(dim=-1)[:, None]).all(dim=-1)
    return bool(alike.any(dim=1).all())
