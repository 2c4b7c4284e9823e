"""A CPU that stands for a device with little memory: every tensor is counted, and one too many raises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.helpers.recorded import acted


class SmallDevice(TorchDispatchMode):
    """Counts the bytes of all tensors that operations inside the block see or make.

    Args:
        most: The bytes that there are. An operation that needs more raises torch's error. None: no limit.

    Attributes:
        peak: The most bytes that were held at the same time.
        failures: How often memory ran out.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most, self.peak, self.failures = most, 0, 0
        self._most_held = 0  # no less than what is held
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation; fail, and keep nothing that it made, if its results do not fit."""
        self._note(args, kwargs)
        found = func(*args, **(kwargs or {}))
        self._note(found)
        least = self.peak if self.most is None else min(self.peak, self.most)
        if self._most_held > least and (held := self.held()) > least:  # counting takes longer than most operations
            if self.most is not None and held > self.most:
                self.failures += 1
                del found
                raise torch.OutOfMemoryError(f"{func} needs {held} bytes of {self.most}")
            self.peak = max(self.peak, held)
        return found

    def held(self) -> int:
        """Return the bytes of all tensors that still exist."""
        self._held = {key: some for key, some in self._held.items() if not some[0].expired()}
        self._most_held = sum(size for _, size in self._held.values())
        return self._most_held

    def _note(self, *values) -> None:
        for value in tree_leaves(values):
            if isinstance(value, Tensor) and value.device.type == "cpu":
                storage = value.untyped_storage()
                known = self._held.get(storage._cdata)
                if known is None or known[0].expired():
                    self._held[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
                    self._most_held += storage.nbytes()


def holding(device: SmallDevice):
    """Return a stand-in for `unweave.engine.compiling.recording.record` whose passes keep the memory that they took."""

    def record(work, pool, _):
        before, device.peak = device.peak, device.held()
        empty = device.peak
        try:
            kept, repeat = acted(work, pool, _)
            taken = device.peak - empty
        finally:
            device.peak = max(before, device.peak)
        pool = torch.empty(max(0, taken), dtype=torch.uint8)
        return kept, lambda: (pool, repeat())[1]

    return record
