"""Progress as occasional lines, where standard error is no terminal: a log file, a job of a scheduler."""

from __future__ import annotations

import time

from unweave.cli.app import err_console, say
from unweave.engine import Callback, Logged, Phase, Running

EVERY = 30.0  # seconds between two lines


class ProgressLines(Callback):
    """Print a line when a phase begins and every half minute. On a terminal there is a live line instead."""

    def __init__(self) -> None:
        self.said, self.phase = 0.0, ""

    def begin(self, running: Running) -> None:
        """Say that the data is read and the work begins."""
        if not err_console.is_terminal:
            say(f"{running.split}; unlearning on {running.bench.device}")

    def step(self, phase: Phase, number: int) -> Logged:
        """Print a line if it is time for one."""
        now = time.monotonic()
        if not err_console.is_terminal and (phase.name != self.phase or now - self.said >= EVERY):
            self.said, self.phase = now, phase.name
            say(f"{phase.name}: step {number + 1} of {phase.steps}")
        return {}
