"""Callbacks see every step of a run, may log values, and may stop it.

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
from unweave.errors import UsageError, as_number, as_whole, require_type


@dataclass(frozen=True)
class Running:
    """The run that a callback belongs to."""

    bench: Workbench
    split: Partition
    test: Partition | None = None
    out: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


class Callback:
    """Observes a run. Override the hooks you need; by default they do nothing.

    A callback must not change the model or draw random numbers outside `unweave.runtime.own_random_numbers`. Otherwise
    a resumed run would differ from an uninterrupted one.

    >>> class Norm(Callback):
    ...     def begin(self, running):
    ...         self.model = running.bench.model
    ...
    ...     def step(self, phase, number):
    ...         return {"norm": sum(weights.norm() for weights in self.model.parameters())}
    """

    def check(self) -> None:
        """Raise a `UsageError` for wrong arguments before the run begins."""

    def describe(self) -> Mapping[str, Any]:
        """Return the callback's entries in the recorded configuration."""
        return {}

    def begin(self, running: Running) -> None:
        """Prepare for the run."""

    def step(self, phase: Phase, number: int) -> Logged:
        """Return values to log with this step."""
        return {}

    def rows(self, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Receive new rows of the history; ``first`` is the number of earlier rows."""

    def wants_to_stop(self) -> bool:
        """Return whether to stop the run after this step. A run with an output folder can be resumed."""
        return False

    def finish(self, running: Running) -> None:
        """Do what remains after the last step, with the model as the method left it."""

    def files(self, result: Any) -> Mapping[str, str]:
        """Return texts for the run's folder by file name, once the run is measured. Only their owner can read them."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """Return the tensors that a resumed run must restore."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""

    def end(self) -> None:
        """Release what `begin` acquired, however the run ended."""


@dataclass(frozen=True)
class Checkpoints(Callback):
    """How often a run with an output folder writes a checkpoint.

    Args:
        seconds: Running time between checkpoints. None: one minute or 20 times what writing the last one took,
            whichever is longer.
        steps: The most steps between checkpoints. None: any number.

    Raises:
        UsageError: ``seconds`` is below 0 or ``steps`` below 1.

    >>> Checkpoints(steps=100)
    Checkpoints(seconds=None, steps=100)
    """

    seconds: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            object.__setattr__(self, "seconds", as_number("seconds", self.seconds))
        if self.steps is not None:
            object.__setattr__(self, "steps", as_whole("steps", self.steps))
        if (self.seconds is not None and self.seconds < 0) or (self.steps is not None and self.steps < 1):
            raise UsageError(
                f"Checkpoints every {self.seconds} seconds or {self.steps} steps: seconds must be at least 0 and "
                "steps at least 1."
            )


@dataclass(frozen=True)
class Progress(Callback):
    """Whether a live line on standard error shows the progress.

    Args:
        show: True or False, or a running rich display that gets one more line. None: show the line if standard error
            is a terminal.

    >>> Progress(show=False)
    Progress(show=False)
    """

    show: bool | Display | None = None


@dataclass(frozen=True)
class StopWhen(Callback):
    """Stop a run early.

    Args:
        condition: Called after every step. When it returns True, a run in a folder writes a checkpoint, and `Stopped`
            is raised.

    >>> StopWhen(lambda: True).wants_to_stop()
    True
    """

    condition: Callable[[], bool]

    def wants_to_stop(self) -> bool:
        """Return the value of the condition."""
        return self.condition()


class Note(Callback):
    """Add entries to the recorded configuration.

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
    """Measure the scores of a run on a different split from the one it unlearned with.

    Args:
        split: The split of the training data to measure on; None: the run's own.
        look: A cache for several evaluations of the same models (`Look`).

    >>> ScoreOn()
    ScoreOn(split=None, look=None)
    """

    split: Partition | None = None
    _: KW_ONLY
    look: Any = None

    def check(self) -> None:
        """Raise a `UsageError` if ``split`` is not a split."""
        require_type("ScoreOn", self.split, (Partition, type(None)), "given a Split")


def of_kind(callbacks: Sequence[Callback], kind: type[Any]) -> Any:
    """Return the only callback of a class, or one with its defaults; raise a `UsageError` if there are several."""
    found = [callback for callback in callbacks if isinstance(callback, kind)]
    if len(found) > 1:
        raise UsageError(f"callbacks= holds {len(found)} {kind.__name__} callbacks. Give at most one.")
    return found[0] if found else kind()


def require_callbacks(callbacks: Any) -> list[Callback]:
    """Check the callbacks before the run begins, and return them."""
    require_type("callbacks", callbacks, Sequence, "a list of callbacks")
    for callback in callbacks:
        require_type("callbacks", callback, Callback, "made of callbacks, such as uw.Watch()")
        callback.check()
    return list(callbacks)
