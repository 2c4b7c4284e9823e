"""Compile ahead what the steps of a method use, and write it to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unweave.engine.batches import derive_seed
from unweave.engine.compiling import save_code
from unweave.engine.phase import Phase
from unweave.engine.workbench import Workbench
from unweave.runtime import own_random_numbers, seed_everything

STEPS = 3  # a shape is compiled when it occurs for the second time


def write_code(bench: Workbench, phases: Sequence[Phase], path: Path) -> int:
    """Take some steps of each phase, compiled, and write the code; return the number of bytes.

    The workbench must not compile by itself (``compile="off"``), and its model is changed.
    """
    compiling = bench.forward.compiling
    with own_random_numbers(bench.device), bench.working():
        for phase in phases:
            seed_everything(derive_seed(bench.seed, phase.name) % 2**32, bench.device)
            compiling.mode = "off"
            phase.prepare(bench)
            phase.begin()
            compiling.mode = "on"
            for number in range(min(STEPS, phase.steps)):
                if phase.is_over():
                    break
                compiling.step(number, of=phase.steps, may_record=False)
                phase.step(number)
    return save_code(path, compiling.marks, compiling.known)
