"""The progress of a study and the time left: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from unweave.engine import make_bar
from unweave.errors import on_one_line
from unweave.lab.study.cells import Cell
from unweave.lab.study.store import Store


class CellProgress:
    """Shows how many cells are done, and estimates the time left from the finished cells of this and earlier starts.

    ``bar`` is the live display, which the runs share. Without a terminal it is off, and ``write`` gets plain lines.
    """

    def __init__(
        self,
        store: Store,
        cells: Sequence[Cell],
        *,
        workers: int = 1,
        show: bool | None = False,
        write: Callable[[str], None] = lambda text: None,
    ) -> None:
        console = Console(stderr=True)
        self.live = console.is_terminal if show is None else show
        self.store, self.cells, self.workers, self.write = store, list(cells), workers, write
        self.bar = make_bar(console, show=self.live)
        self._task: Any = None

    def __enter__(self) -> Self:
        self.bar.start()
        self._task = self.bar.add_task("study", total=len(self.cells), completed=self.done, values="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    @property
    def done(self) -> int:
        """The number of cells that are done."""
        return sum(self.store.is_done(cell) for cell in self.cells)

    def train(self, seed: int) -> None:
        """Show that the original of a seed is being trained."""
        if self.live:
            self._show(f"training the original of seed {seed}")
        else:
            self.say(f"training the original of seed {seed}")

    def begin(self, name: str) -> None:
        """Show which cell is running."""
        if self.live:
            self._show(name)

    def _show(self, words: str) -> None:
        left = self.left()
        self.bar.update(self._task, completed=self.done, values=f"{left} · {words}" if left else words)

    def end(self, name: str, *, failed: bool = False) -> None:
        """Show that a cell has ended."""
        words = f"{name} failed" if failed else name
        text = " · ".join(part for part in (f"[{self.done}/{len(self.cells)}] {words}", self.left()) if part)
        if self.live:
            self.bar.update(self._task, completed=self.done)
            if not failed:
                return
        self.say(text)

    def say(self, text: str) -> None:
        """Write a line."""
        text = on_one_line(text)  # it may hold the words of an error
        if self.live:
            self.bar.console.print(text, style="dim", markup=False, highlight=False)
        else:
            self.write(text)

    def left(self) -> str:
        """Return the time left as text; empty if it is unknown."""
        remaining = [cell for cell in self.cells if not self.store.is_done(cell)]
        seconds = seconds_left(remaining, self.store.times(), workers=self.workers)
        return "" if seconds is None or not remaining else f"about {in_words(seconds)} left"


def seconds_left(cells: Iterable[Cell], times: dict[str, float], *, workers: int = 1) -> float | None:
    """Estimate how long cells will take; None without a finished run.

    A cell takes the mean time of its row, else of its method, else of all cells. Training originals and comparing with
    retrained models are added.

    >>> some = [Cell(method="ft", seed=1), Cell(method="ga", seed=1)]
    >>> seconds_left(some, {"trained.seed-1": 9.0, "ft.seed-0": 2.0})
    4.0
    >>> seconds_left(some, {"trained.seed-1": 9.0, "ft.seed-0": 2.0, "compare.ft.seed-0": 1.0})
    6.0
    >>> seconds_left(some, {}) is None
    True
    """
    cells = list(cells)
    models = _times_of("trained.", times)
    comparisons = _times_of("compare.", times)
    runs = {name: seconds for name, seconds in times.items() if name not in {**models, **comparisons}}
    if not runs:
        return None
    new = {cell.seed for cell in cells if f"trained.seed-{cell.seed}" not in models}
    training = statistics.fmean(models.values()) * len(new) if models else 0.0
    comparing = statistics.fmean(comparisons.values()) * len(cells) if comparisons else 0.0
    return (training + comparing + sum(_expected(cell, runs) for cell in cells)) / workers


def _expected(cell: Cell, runs: Mapping[str, float]) -> float:
    """Return the mean time of the runs most similar to a cell: of its row, else of its method, else of all."""
    row = cell.name.rpartition(".seed-")[0]
    alike = _times_of(f"{row}.seed-", runs) or _times_of(f"{cell.method}.", runs) or runs
    return statistics.fmean(alike.values())


def _times_of(beginning: str, times: Mapping[str, float]) -> dict[str, float]:
    """Return the times whose names start with ``beginning``."""
    return {name: seconds for name, seconds in times.items() if name.startswith(beginning)}


def in_words(seconds: float) -> str:
    """Return a duration as text.

    >>> [in_words(seconds) for seconds in (4, 100, 7000, 90000)]
    ['4 s', '2 min', '1.9 h', '25 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 36000 else f"{seconds / 3600:.0f} h"
