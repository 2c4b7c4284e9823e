"""The cost of a run: time, samples run forward and differentiated, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from unweave.runtime import process_memory


@dataclass
class Cost:
    """The cost of a run. A resumed run adds to the cost of its earlier part."""

    seconds: float = 0.0
    sample_forwards: int = 0
    sample_gradients: int = 0
    peak_memory_bytes: int | None = None  # of the device; None if the device does not report it
    process_memory_bytes: int | None = None  # the process's peak, including what it held before; None if unknown

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


class Meter:
    """Measures the time and memory of a run and counts its samples."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.cost = device, Cost()
        self._ticked = time.perf_counter()

    def count(self, samples: int, *, differentiated: bool) -> None:
        """Add samples that were run forward and, with ``differentiated``, backward."""
        self.cost.sample_forwards += samples
        self.cost.sample_gradients += samples if differentiated else 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time and peak memory of the block to the cost."""
        self._start()
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the block, such as an evaluation, in the cost."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def tick(self) -> None:
        """Update the time and peak memory of the cost."""
        now = time.perf_counter()
        self.cost.seconds += now - self._ticked
        self._ticked = now
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
            self.cost.peak_memory_bytes = max(peak, self.cost.peak_memory_bytes or 0)
        if (held := process_memory.peak()) is not None:
            self.cost.process_memory_bytes = max(held, self.cost.process_memory_bytes or 0)

    def _start(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        process_memory.reset()
        self._ticked = time.perf_counter()

    def _stop(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.tick()
