"""What goes along with a run: a callback sees every step, may log values, and may ask to stop.

>>> class Count(Callback):
...     steps = 0
...     def step(self, phase, number):
...         self.steps += 1
...         return {"steps_so_far": float(self.steps)}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress as Display
from torch import Tensor

from unweave.data import Partition
from unweave.engine.phase import Logged, Phase
from unweave.engine.workbench import Workbench
from unweave.errors import UsageError, require_type


@dataclass(frozen=True)
class Running:
    """The run that a callback goes along with."""

    bench: Workbench
    split: Partition
    test: Partition | None = None
    out: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


class Callback:
    """Goes along with a run. Override what is needed; every hook does nothing by default.

    A callback must not change the model or draw random numbers outside `unweave.runtime.own_random_numbers`, or a run
    that resumes would differ from one that was never stopped.
    """

    def check(self) -> None:
        """Raise a `UsageError` for what cannot work, before any work is done."""

    def describe(self) -> Mapping[str, Any]:
        """Return what of this belongs into the configuration on record."""
        return {}

    def begin(self, running: Running) -> None:
        """Prepare for the run."""

    def step(self, phase: Phase, number: int) -> Logged:
        """Return values to log with this step."""
        return {}

    def rows(self, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take new rows of the history, of which ``first`` came before."""

    def wants_to_stop(self) -> bool:
        """Tell, after a step, whether to leave the run. A run in a folder can be resumed."""
        return False

    def finish(self, running: Running) -> None:
        """Do what remains after the last step, with the model as the method left it."""

    def state(self) -> Mapping[str, Tensor]:
        """Return what a run that resumes must bring back."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def end(self) -> None:
        """Let go of what `begin` took, however the run ended."""


@dataclass(frozen=True)
class Checkpoints(Callback):
    """How often a run in a folder writes a checkpoint.

    Args:
        seconds: Running time between checkpoints. None: a minute, or 20 times as long as the last one took to write.
        steps: The most steps between checkpoints. None: any number.

    Raises:
        UsageError: ``seconds`` is below 0 or ``steps`` below 1.

    >>> Checkpoints(steps=100)
    Checkpoints(seconds=None, steps=100)
    """

    seconds: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if (self.seconds is not None and self.seconds < 0) or (self.steps is not None and self.steps < 1):
            raise UsageError(
                f"Checkpoints every {self.seconds} seconds or {self.steps} steps: seconds must be at least 0 and "
                "steps at least 1."
            )


@dataclass(frozen=True)
class Progress(Callback):
    """Whether a live line on standard error shows the progress.

    Args:
        show: True or False, or a live display of rich that is on already and gets one more line. None: if standard
            error is a terminal.

    >>> Progress(show=False)
    Progress(show=False)
    """

    show: bool | Display | None = None


@dataclass(frozen=True)
class StopWhen(Callback):
    """Leave a run early.

    Args:
        condition: Called after every step. When it returns True, a run in a folder writes a checkpoint, and `Stopped`
            is raised.

    >>> StopWhen(lambda: True).wants_to_stop()
    True
    """

    condition: Callable[[], bool]

    def wants_to_stop(self) -> bool:
        """Ask the condition."""
        return self.condition()


class Note(Callback):
    """Add entries to the configuration on record.

    Args:
        entries: Names and values that JSON can hold.

    >>> Note(ticket="2031-17").describe()
    {'ticket': '2031-17'}
    """

    def __init__(self, **entries: Any) -> None:
        self.entries = entries

    def describe(self) -> Mapping[str, Any]:
        """Return the entries."""
        return self.entries


@dataclass(frozen=True, eq=False)
class ScoreOn(Callback):
    """Measure the scores of a run on another split than the one it unlearned with.

    Args:
        split: The split of the training data to measure on; None: the run's own.
        look: What several evaluations remember of the models that they share.

    >>> ScoreOn()
    ScoreOn(split=None, look=None)
    """

    split: Partition | None = None
    _: KW_ONLY
    look: Any = None

    def check(self) -> None:
        """Refuse what is not a split."""
        require_type("ScoreOn", self.split, (Partition, type(None)), "given a Split")


def of_kind(callbacks: Sequence[Callback], kind: type[Any]) -> Any:
    """Return the only callback of a kind, or one with its defaults; refuse two of them."""
    found = [callback for callback in callbacks if isinstance(callback, kind)]
    if len(found) > 1:
        raise UsageError(f"callbacks= holds {len(found)} of {kind.__name__}. Give one.")
    return found[0] if found else kind()


def require_callbacks(callbacks: Any) -> list[Callback]:
    """Return the callbacks, checked before any work is done."""
    require_type("callbacks", callbacks, Sequence, "a list of callbacks")
    for callback in callbacks:
        require_type("callbacks", callback, Callback, "made of callbacks, such as uw.Watch()")
        callback.check()
    return list(callbacks)
