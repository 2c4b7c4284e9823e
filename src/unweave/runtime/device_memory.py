"""A limit on the memory that a run uses on its device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from unweave.errors import UsageError

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


@contextmanager
def limited_to(size: int | None, device: torch.device) -> Iterator[None]:
    """Limit the memory of a CUDA device to this many bytes. Allocations beyond that fail."""
    if size is None:
        yield
        return
    if device.type != "cuda":
        raise UsageError(
            f"max_memory limits the memory of a CUDA device, but this run is on {device.type}. Use micro_batch instead."
        )
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
