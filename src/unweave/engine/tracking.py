"""Send the history of a run to a tracker that Accelerate knows, such as TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unweave.engine.callbacks import Callback, Running
from unweave.errors import UsageError, as_path, require_type, unknown
from unweave.runtime import processes
from unweave.storage import private_folder

HASHES = ("split", "judged_on")  # of a configuration: which samples were forgotten
INSTALLED_AS = {"comet_ml": "comet-ml"}  # packages whose name differs from the tracker's


def _make(folder: Path) -> None:
    try:
        private_folder(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made for the trackers: {error}. Choose another folder=.") from error


def check_trackers(names: Sequence[str]) -> None:
    """Raise a `UsageError` for trackers that Accelerate does not know or whose package is not installed.

    >>> check_trackers(["tensorbord"])
    Traceback (most recent call last):
    unweave.errors.UsageError: There is no tracker 'tensorbord'. Did you mean 'tensorboard'? Known: aim, ...
    """
    from accelerate import tracking

    known: Mapping[str, Any] = tracking.LOGGER_TYPE_TO_CLASS
    builtin = {str(kind) for kind in tracking.LoggerType.list()}
    there = {str(kind) for kind in tracking.get_available_trackers()}
    for name in names:
        require_type("a tracker", name, str, "a name")
        if name not in known:
            raise unknown("tracker", name, known)
        if name in builtin - there:
            package = INSTALLED_AS.get(name, name)
            raise UsageError(f"The tracker {name} is not installed. Install it with: pip install {package}")


class Track(Callback):
    """Send the history of a run to trackers that Accelerate knows, under the name of the output folder.

    Values are named after their phase, such as ``stage 2/forget_loss``; their step counts through all phases.

    Args:
        names: Trackers, such as ``"tensorboard"``, ``"wandb"`` or ``"mlflow"``.
        folder: The folder for trackers that write files. None: ``tracking`` beside the output folder.

    >>> Track("tensorbord").check()
    Traceback (most recent call last):
    unweave.errors.UsageError: There is no tracker 'tensorbord'. Did you mean 'tensorboard'? Known: aim, ...
    """

    def __init__(self, *names: str, folder: str | os.PathLike[str] | None = None) -> None:
        self.names, self.folder = names, folder
        self.trackers: list[Any] = []

    def check(self) -> None:
        """Raise a `UsageError` for trackers that are unknown or not installed."""
        check_trackers(self.names)
        if self.folder is not None:
            as_path("folder", self.folder)

    def begin(self, running: Running) -> None:
        """Open the trackers, in the first process."""
        if not self.names or not processes.is_first():
            return
        from accelerate import PartialState, tracking

        target, config = running.out, running.config
        folder = Path(self.folder) if self.folder is not None else (target.parent if target else Path()) / "tracking"
        name = target.name if target else f"{config.get('method', 'run')}.seed-{running.bench.seed}"
        PartialState()  # the trackers ask it which process they are in
        for kind in (tracking.LOGGER_TYPE_TO_CLASS[tracker] for tracker in self.names):
            if kind.requires_logging_directory:
                _make(folder)
            tracker = kind(name, os.fspath(folder)) if kind.requires_logging_directory else kind(name)
            if hasattr(tracker, "start"):  # newer Accelerate; older ones start at once
                tracker.start()
            tracker.store_init_configuration(_flat(config))
            self.trackers.append(tracker)

    def rows(self, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send new rows of the history."""
        for step, row in enumerate(rows, start=first):
            values = {f"{row['phase']}/{name}": value for name, value in row.items() if name not in ("phase", "step")}
            for tracker in self.trackers:
                tracker.log(values, step=step)

    def end(self) -> None:
        """Close the trackers, which write what they still hold."""
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a configuration and of its settings; trackers accept no others.

    The hashes of splits stay here: who knows the data could find the forgotten samples from one by trying.
    """
    whole = {name: value for name, value in {**config, **config.get("settings", {})}.items() if name not in HASHES}
    return {name: value for name, value in whole.items() if isinstance(value, bool | int | float | str)}
