"""The history of a run, sent to a tracker: TensorBoard, Weights & Biases, MLflow, … whatever Accelerate knows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from unweave.errors import UsageError, unknown
from unweave.runtime import processes

INSTALLED_AS = {"comet_ml": "comet-ml"}  # where the package has another name than the tracker


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that Accelerate does not know, or whose package is not installed.

    >>> check_trackers(["tensorbord"])
    Traceback (most recent call last):
    unweave.errors.UsageError: There is no tracker 'tensorbord'. Did you mean 'tensorboard'? Known: aim, ...
    """
    from accelerate import tracking

    known: Mapping[str, Any] = tracking.LOGGER_TYPE_TO_CLASS
    builtin = {str(kind) for kind in tracking.LoggerType.list()}
    there = {str(kind) for kind in tracking.get_available_trackers()}
    for name in names:
        if name not in known:
            raise unknown("tracker", name, known)
        if name in builtin - there:
            package = INSTALLED_AS.get(name, name)
            raise UsageError(f"The tracker {name} is not installed. Install it with: pip install {package}")


class Tracking:
    """Sends rows of a history to trackers under the name of a run; those that write files write below a folder.

    Values are named after their phase, such as ``stage 2/forget_loss``; their step counts through all phases.
    """

    def __init__(
        self, trackers: Sequence[str], *, name: str, folder: str | os.PathLike[str], config: Mapping[str, Any]
    ) -> None:
        from accelerate import PartialState, tracking

        check_trackers(trackers)
        PartialState()  # the trackers ask it which process they are in
        self.trackers = []
        for kind in (tracking.LOGGER_TYPE_TO_CLASS[tracker] for tracker in trackers):
            tracker = kind(name, os.fspath(folder)) if kind.requires_logging_directory else kind(name)
            if hasattr(tracker, "start"):  # newer Accelerate; older ones start at once
                tracker.start()
            tracker.store_init_configuration(_flat(config))
            self.trackers.append(tracker)

    def __call__(self, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send new rows of the history, of which so many came before."""
        for step, row in enumerate(rows, start=first):
            values = {f"{row['phase']}/{name}": value for name, value in row.items() if name not in ("phase", "step")}
            for tracker in self.trackers:
                tracker.log(values, step=step)

    def close(self) -> None:
        """Let the trackers write what they hold."""
        for tracker in self.trackers:
            tracker.finish()


@contextmanager
def tracked(
    trackers: Sequence[str],
    folder: str | os.PathLike[str] | None,
    *,
    out: str | os.PathLike[str] | None,
    config: Mapping[str, Any],
) -> Iterator[Tracking | None]:
    """Track a run while the block lasts, in the first process; nothing where no tracker is named."""
    if not trackers or not processes.is_first():
        yield None
        return
    target = Path(out).resolve() if out is not None else None
    place = Path(folder) if folder is not None else (target.parent if target else Path()) / "tracking"
    name = target.name if target else f"{config['method']}.seed-{config['seed']}"
    with closing(Tracking(trackers, name=name, folder=place, config=config)) as tracking:
        yield tracking


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a configuration, those of its settings included; trackers take no others."""
    whole = {**config, **config.get("settings", {})}
    return {name: value for name, value in whole.items() if isinstance(value, bool | int | float | str)}
