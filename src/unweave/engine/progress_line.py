"""A live line on standard error: phase, step, logged values, time left. Off if standard error is not a terminal.

Only the first process shows it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from unweave.runtime import processes

REFRESH_SECONDS = 0.2


def make_bar(console: Console, *, show: bool) -> Progress:
    """Return a live display for the lines of phases; a larger task may add its own line."""
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # values are shortened if the line is too long
    return Progress(
        TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[values]}", table_column=rest),
        console=console,
        transient=True,
        expand=True,
        disable=not show,
    )


class ProgressLine:
    """Shows one phase after the other. ``show=None`` shows the line if standard error is a terminal.

    ``show`` may also be a running live display, which then gets one more line.
    """

    def __init__(self, *, show: bool | Progress | None = None, title: str = "") -> None:
        self.title = title
        self._last = 0.0
        self._task: Any = None
        self._shared = isinstance(show, Progress)
        if isinstance(show, Progress):
            self.visible, self._bar = not show.disable, show
            return
        console = Console(stderr=True)
        self.visible = processes.is_first() and (console.is_terminal if show is None else show)
        self._bar = make_bar(console, show=self.visible)

    def __enter__(self) -> Self:
        if not self._shared:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shared:
            self._bar.stop()
        elif self._task is not None:
            self._bar.remove_task(self._task)

    def phase(self, name: str, *, steps: int, done: int) -> None:
        """Start to show a phase."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        description = f"{self.title} {name}".strip()
        self._task = self._bar.add_task(description, total=steps, completed=done, values="")

    def due(self) -> bool:
        """Return whether an update is due (reading values may wait for the device)."""
        now = time.monotonic()
        if not self.visible or now - self._last < REFRESH_SECONDS:
            return False
        self._last = now
        return True

    def show(self, done: int, row: Mapping[str, Any]) -> None:
        """Show the progress of the phase and its latest values."""
        values = "  ".join(
            f"{name.replace('_', ' ')} {value:.3g}" for name, value in row.items() if name not in ("phase", "step")
        )
        self._bar.update(self._task, completed=done, values=values)
