"""The device that computes, and running a model there without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from unweave.errors import UsageError
from unweave.runtime import processes
from unweave.runtime.randomness import own_random_numbers, seed_everything

MOST = 1 << 22  # restore buffers of at most this many numbers; larger buffers hold weights, not statistics


@contextmanager
def reading(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put the model on the device in evaluation mode, without gradients. Afterwards restore it.

    Results inside do not depend on the caller's random state: the generators are seeded with 0, so random transforms
    repeat, and the caller's generators are restored. So are buffers that a model writes even in evaluation mode, such
    as counters.
    """
    written = [
        (module, name, buffer, buffer.clone(), buffer._version)
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.numel() <= MOST and not buffer.is_inference()  # inference buffers are read-only and have no version
    ]
    modes = [(module, module.training) for module in model.modules()]
    first = next(iter(model.parameters()), None)
    home = first.device if first is not None else device
    model.to(device).eval()
    try:
        with torch.no_grad(), own_random_numbers(device):
            seed_everything(0, device)
            yield
    finally:
        model.to(home)
        for module, name, buffer, value, version in written:
            now = module._buffers.get(name)
            if now is None or now.shape != value.shape:  # the module has resized it, and may rely on that
                continue
            if now is not buffer or buffer._version != version:
                buffer.data.copy_(value)
                module._buffers[name] = buffer
        for module, mode in modes:
            module.training = mode


def pick_device(device: str | torch.device | None) -> torch.device:
    """Return the requested device, or the best one available. Each of several processes gets its own."""
    processes.join(device)
    if device is None:
        from accelerate import PartialState

        found = PartialState().device
        return torch.device(found.type, found.index or 0) if found.type == "cuda" else found
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]  # the rest of PyTorch's message may fill a page
        raise UsageError(f"The device {str(device)!r} cannot be used here: {why}") from error
    if chosen.type == "meta":
        raise UsageError(f"The device {str(device)!r} cannot be used here: it holds no values.")
    if chosen.type != "cuda":
        return chosen
    if chosen.index is None:
        return torch.device("cuda", processes.local_rank())
    if chosen.index != processes.local_rank() and processes.count() > 1:
        raise UsageError(f"{processes.count()} processes cannot share the device {str(device)!r}. Pass device='cuda'.")
    return chosen
