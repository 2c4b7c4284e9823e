"""The progress of a tuning: a line for every trial, and on a terminal a live line for the running one."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from unweave.engine import make_bar
from unweave.errors import on_one_line
from unweave.lab.study import in_words
from unweave.lab.tuning.searches import Tried

if TYPE_CHECKING:
    from unweave.lab.tuning.tune import Tuning


class TrialProgress:
    """Writes a line when a trial ends, with the time left for one process. ``bar`` needs ``live`` and a terminal."""

    def __init__(self, tuning: Tuning, *, write: Callable[[str], None] | None, live: bool) -> None:
        console = Console(stderr=True)
        self.tuning, self.write = tuning, write
        self.bar = make_bar(console, show=live and console.is_terminal)
        self._task: Any = None

    def __enter__(self) -> Self:
        self.bar.start()
        self._task = self.bar.add_task("tuning", total=self._all(), values="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def train(self, seed: int) -> None:
        """Show that a model is being trained."""
        self._say(f"training a model of seed {seed} without the held-out data")

    def begin(self, tried: Tried) -> None:
        """Show which trial is running."""
        self.bar.update(self._task, completed=self._done(), values=f"{tried.method} trial {tried.trial}")

    def end(self, tried: Tried) -> None:
        """Show the outcome of a trial."""
        result = f"failed: {tried.error}" if tried.error else f"{tried.score:.4f}"
        left = self.tuning.left()
        times = {name: [trial.seconds for trial in search.tried()] for name, search in self.tuning.searches.items()}
        known = [seconds for some in times.values() for seconds in some]
        seconds = sum(count * statistics.fmean(times[name] or known) for name, count in left.items())
        words = f" · about {in_words(seconds)} of work left" if left else ""
        self._say(
            f"[{self._done()}/{self._all()}] {tried.method} trial {tried.trial} ({tried.origin}): {result}{words}"
        )

    def _all(self) -> int:
        return self.tuning.trials * len(self.tuning.searches)

    def _done(self) -> int:
        return self._all() - sum(self.tuning.left().values())

    def _say(self, text: str) -> None:
        text = on_one_line(text)  # it may hold the words of an error
        if not self.bar.disable:
            self.bar.console.print(text, style="dim", markup=False, highlight=False)
        elif self.write:
            self.write(text)
