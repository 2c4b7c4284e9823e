"""What a model's last linear layer receives: the features in which neighbours are found."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unweave.data import Samples
from unweave.errors import UsageError
from unweave.runtime import exchange, pick_device, processes, reading
from unweave.tasks import logits

FEW = 16  # samples that tell which layer the logits come from


def features(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int = 256,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return what the model's last linear layer receives, one row per sample, on the CPU.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> features(model, Samples((torch.randn(5, 4), torch.zeros(5, dtype=torch.long))), torch.arange(5)).shape
    torch.Size([5, 3])
    """
    where = pick_device(device)
    part = processes.part_of(len(rows))
    mine = part.rows(rows) if part else rows
    samples.keep(mine, where)
    seen: list[Tensor] = []
    order: list[tuple[nn.Module, Tensor]] = []

    def note_order(module: nn.Module, _: Any, output: Tensor) -> None:
        order.append((module, output))

    def note_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0].flatten(1).float().cpu())

    with reading(model, where):
        linear = [m for m in model.modules() if isinstance(getattr(m, "base_layer", m), nn.Linear)]  # also adapted ones
        hooks = [module.register_forward_hook(note_order) for module in linear]
        try:
            said = logits(model, samples.batch(rows[:FEW], where).data)
        finally:
            for hook in hooks:
                hook.remove()
        heads = [module for module, output in order if _leads_to(output, said)]
        if not heads:
            raise UsageError(
                "The model has no linear layer whose outputs are its logits, so its penultimate features are "
                "unknown. Compute features yourself and pass them as features=."
            )
        handle = heads[-1].register_forward_pre_hook(note_input)
        try:
            for some in mine.split(batch_size):
                logits(model, samples.batch(some, where).data)
        finally:
            handle.remove()
    found = exchange.gathered(torch.cat(seen), part)
    if not found.isfinite().all():
        raise UsageError("The model's features hold NaN or infinite values: check its weights and the data.")
    return found


def _leads_to(output: Tensor, said: Tensor) -> bool:
    """Tell whether a layer's outputs rank the classes of every sample as the logits do, at one of its places at least.

    Logits may be scaled, bounded or normalised after it.
    """
    if output.shape[-1:] != said.shape[-1:] or output.numel() % said.numel():
        return False
    places = output.reshape(len(said), -1, said.shape[-1])
    alike = (places.argsort(dim=-1) == said.argsort(dim=-1)[:, None]).all(dim=-1)
    return bool(alike.any(dim=1).all())
