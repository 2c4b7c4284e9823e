"""Seeds, and random numbers that leave the caller's generators as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_host(seed: int) -> None:
    """Seed the generators of the host, which transforms use. The generators of devices stay as they are."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)


def seed_everything(seed: int, device: torch.device) -> None:
    """Seed the generators of the host and of one device. The generators of other devices stay as they are."""
    seed_host(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def own_random_numbers(device: torch.device | None = None) -> Iterator[None]:
    """Restore the caller's generators (torch, NumPy, Python) afterwards, whatever is drawn inside.

    >>> random.seed(1)
    >>> with own_random_numbers():
    ...     inside = random.random()
    >>> random.random() == inside
    True
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
