"""Recorded passes acted out on the CPU: repeating one runs its work again into the same tensors, as a graph does."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from unweave.engine.compiling import captures, forwards, recording


def acted(work, pool, device):
    """Stand in for `unweave.engine.compiling.recording.record`."""
    found = work()
    kept = [None if part is None else part.detach() for part in found]

    def repeat():
        with torch.enable_grad():
            again = work()
        with torch.no_grad():
            for mine, part in zip(kept, again, strict=True):
                if mine is not None:
                    mine.copy_(part)

    return kept, repeat


@contextmanager
def acting(*, fewest=1):
    """Record passes on the CPU, too; yield the list of those that are recorded."""
    made = []
    record = recording.Recording.record

    def counted(self):
        record(self)
        made.append(self)

    with ExitStack() as stack:
        stack.enter_context(patch.object(captures, "can_record", lambda device: True))
        stack.enter_context(patch.object(captures, "FEWEST", fewest))
        stack.enter_context(patch.object(recording, "record", acted))
        stack.enter_context(patch.object(recording.Recording, "record", counted))
        stack.enter_context(patch.object(forwards.Forwards, "_finds_nothing", lambda self: False))
        yield made
