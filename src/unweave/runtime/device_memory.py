"""The memory of a device: what is free, and a limit on what a run uses."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from unweave.errors import RunError, UsageError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(size: int | str) -> int:
    """Return a size as a number of bytes.

    >>> parse_bytes("8GB"), parse_bytes("1.5 GiB"), parse_bytes(100)
    (8000000000, 1610612736, 100)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", str(size).lower())
    if not found or not 0 < float(found[1]) < 2**63:
        raise UsageError(f"{size!r} is not a size of memory. Write it like 8GB, 500MiB or a number of bytes.")
    return int(float(found[1]) * UNITS[found[2] or ""])


def free_memory(device: torch.device) -> int:
    """Return how many bytes of a CUDA device torch may still take: those that are free, within the limit if one is set.

    What torch holds and does not use counts as taken.
    """
    free, total = torch.cuda.mem_get_info(device)
    return int(min(free, _share(device) * total - torch.cuda.memory_reserved(device)))


def _share(device: torch.device) -> float:
    """Return the share of the device's memory that torch may take. Before torch 2.6 it cannot be asked."""
    return float(getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device))


def give_back(device: torch.device) -> None:
    """Give the memory that torch holds and does not use back to the device, also what only dead cycles refer to."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def limited_to(size: int | None, device: torch.device) -> Iterator[None]:
    """Limit the memory that torch takes on a CUDA device to this many bytes. Allocations beyond that fail.

    Memory that torch holds and does not use counts too, so other processes can rely on the rest. The driver's own
    memory for the process (its context and kernels) does not count. None: no limit.

    Raises:
        UsageError: The device has no limit to set, or more is in use already.
        RunError: Memory ran out where no smaller batch helps.
    """
    try:
        if size is None:
            yield
            return
        _require_room(size, device)
        total, before = torch.cuda.mem_get_info(device)[1], _share(device)
        torch.cuda.set_per_process_memory_fraction(min(before, size / total), device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(before, device)
    except torch.OutOfMemoryError as error:
        there = "there is on the device" if size is None else f"max_memory allows ({size / 1e9:.2f} GB)"
        advice = "Use a device with more memory" if size is None else "Raise max_memory"
        raise RunError(
            f"Weights, gradients and whatever else is needed beside a batch take more memory than {there}, so smaller "
            f"batches do not help. {advice}."
        ) from error


def _require_room(size: int, device: torch.device) -> None:
    """Give back what is not used; raise a `UsageError` if more is in use than this many bytes."""
    if device.type != "cuda":
        raise UsageError(
            f"max_memory limits the memory of a CUDA device, but this run is on {device.type}. Use micro_batch instead."
        )
    give_back(device)
    if (held := torch.cuda.memory_reserved(device)) > size:
        raise UsageError(
            f"max_memory is {size / 1e9:.2f} GB, but torch holds {held / 1e9:.2f} GB on {device} already: the model, "
            "the data and whatever else this process keeps there. Raise max_memory."
        )
