"""The folder of one run, and the weights in it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unweave.engine import CheckpointFolder, CollapseError
from unweave.errors import RunError, Stopped, UsageError
from unweave.runs.weights import ADAPTER, WEIGHTS, save_adapter, to_bytes
from unweave.runtime import processes
from unweave.storage import (
    Lock,
    read_json,
    sync_folder,
    write_whole,
)

LAST_GOOD, BEGUN = "last-good.safetensors", "begun"
UNFINISHED = ".unfinished"  # ends the name of a folder that is worked on
MAY_CHANGE = ("limits",)  # what a resumed run may set anew, because it changes no result


def unfinished(target: Path) -> Path:
    """Return where the work on a folder happens until it is done."""
    target = target.resolve()  # as it was given, it may have no name: "."
    return target.with_name(target.name + UNFINISHED)


def kept_original(target: Path) -> Path:
    """Return where a command keeps the original that it trained, as long as the run that begins with it is unfinished.

    Trained again it might be another, if only by rounding, and the run could not be gone on with.
    """
    target = target.resolve()  # as it was given, it may have no name: "."
    return target.with_name(target.name + ".original.safetensors")


def refuse_existing(target: Path) -> None:
    """Refuse to write where something is already."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists and is not empty. Choose another --out, or remove it.")


def check_folder(target: Path, *, resume: bool) -> None:
    """Refuse a place where a run cannot begin, or one where there is none to go on with."""
    work = unfinished(target)
    if resume and not work.exists() and (target / WEIGHTS).exists():
        raise UsageError(f"The run at {target} is finished: there is nothing to resume.")
    refuse_existing(target)
    if work.exists() and not resume:
        raise UsageError(f"{work} holds an unfinished run. Go on with it (resume=True, --resume) or remove it.")
    if resume and not work.exists():
        raise UsageError(f"There is no unfinished run at {work} to resume. Start it without resume.")
    there = next(folder for folder in (work, *work.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there):  # to say so now, not when all the work is done
            pass
    except OSError as error:
        raise RunError(f"The output folder {target} cannot be written: {error}") from error


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


class OutputFolder:
    """The folder of one run. Work happens beside it, in ``NAME.unfinished``; at the end it is renamed.

    One run at a time works in it. Where a run has several processes, the first writes and the others read.
    """

    def __init__(
        self,
        target: Path,
        config: Mapping[str, Any],
        *,
        resume: bool,
        checkpoint_seconds: float | None,
        checkpoint_steps: int | None,
    ) -> None:
        self.target, self.config = target.resolve(), config
        try:
            self._configuration = json.dumps(config, indent=2) + "\n"
        except TypeError as error:
            raise UsageError(f"The configuration must hold what JSON can: {error}") from error
        self.work = unfinished(target)
        self.checkpoints = CheckpointFolder(
            self.work / "checkpoints", every_seconds=checkpoint_seconds, every_steps=checkpoint_steps
        )
        self.lock: Lock | None = None
        self.worked_out: nn.Module | None = None  # the model when all steps were taken, until it is saved
        processes.first(lambda: self._open(resume=resume))
        if not processes.everyone(self.work.is_dir()):
            if self.lock:
                self.abandon()
            raise UsageError(f"{self.work} is not seen by every process. Take a folder that all machines share.")

    def _open(self, *, resume: bool) -> None:
        try:
            if not resume:
                self.work.mkdir(parents=True)
            self.lock = Lock(self.work / "lock")
            try:
                if resume:
                    self._check_same()
                self._write("config.json", self._configuration)
            except BaseException:
                self.lock.release()
                raise
            (self.work / LAST_GOOD).unlink(missing_ok=True)
            if not (self.work / BEGUN).exists():
                self._write(BEGUN, datetime.now(UTC).isoformat(timespec="seconds"))
        except FileExistsError:
            raise UsageError(f"{self.work} holds an unfinished run. Resume it or choose another --out.") from None
        except OSError as error:
            if not resume:
                remove_folder(self.work)
            raise RunError(f"The output folder {self.target} cannot be written: {error}") from error

    def _check_same(self) -> None:
        path = self.work / "config.json"
        if not path.exists() and self.checkpoints.newest_file() is None:
            return  # stopped before it had written anything
        try:
            before = read_json(path)
            if not isinstance(before, dict):
                raise UsageError(f"{path} is no configuration.")
        except UsageError as error:
            raise UsageError(f"{error} Remove the folder {self.work}.") from error
        now = json.loads(self._configuration)
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key) and key not in MAY_CHANGE)
        if changed:
            raise UsageError(
                f"The unfinished run at {self.work} was begun with another {', '.join(changed)}. "
                "Resume with the values that began it, or remove the folder."
            )

    @property
    def begun(self) -> str:
        """When the run began, in UTC; a resumed run began when it was first started."""
        return processes.first((self.work / BEGUN).read_text)

    def _write(self, name: str, content: str) -> None:
        write_whole(self.work / name, content.encode())

    def abandon(self, good: Mapping[str, Tensor] | None = None) -> Path | None:
        """Leave nothing behind that could not be resumed or used; return where the last good weights are, if they are.

        ``good`` are weights that the guard found good last; otherwise the newest checkpoint has to do.
        """
        kept = self.checkpoints.newest_file()
        if self.lock is None:  # not the first process
            return kept
        try:
            if good is not None:
                write_whole(self.work / LAST_GOOD, to_bytes(good))
                kept = self.work / LAST_GOOD
        except OSError:
            pass  # the checkpoint is still there, if there is one
        self.lock.release()
        if kept is None and not (self.work / WEIGHTS).exists():
            remove_folder(self.work)
        return kept

    def finish(self, model: nn.Module, texts: Mapping[str, str], *, private: Mapping[str, str] | None = None) -> None:
        """Write the results, then let the folder appear under its name. ``private`` files are for its owner only."""
        processes.first(lambda: self._finish(model, texts, private or {}))

    def _finish(self, model: nn.Module, texts: Mapping[str, str], private: Mapping[str, str]) -> None:
        try:
            write_whole(self.work / WEIGHTS, to_bytes(model.state_dict()))
            save_adapter(model, self.work / ADAPTER)
            for name, text in texts.items():
                self._write(name, text)
            for name, text in private.items():
                write_whole(self.work / name, text.encode(), private=True)
            (self.work / BEGUN).unlink()
            sync_folder(self.work)
            refuse_existing(self.target)
            if self.target.exists():
                self.target.rmdir()  # an empty folder that the user made
            if self.lock:
                self.lock.release()
            self.work.rename(self.target)
            sync_folder(self.target.parent)
            CheckpointFolder(self.target / "checkpoints").prune()
        except OSError as error:
            raise RunError(f"The results cannot be written to {self.target}: {error}") from error


@contextmanager
def left_in_order(folder: OutputFolder | None) -> Iterator[None]:
    """Where a run is not brought to its end, leave its folder so that it can be resumed, with the last good weights."""
    try:
        yield
    except BaseException as error:
        good = error.good.weights if isinstance(error, CollapseError) and error.good else None
        worked_out = folder.worked_out if folder else None
        kept = folder.abandon(worked_out.state_dict() if worked_out else good) if folder else None
        if kept and worked_out and kept.name == LAST_GOOD and isinstance(error, UsageError | RunError):
            error.args = (f"{error} All steps had been taken; the unlearned weights are in {kept}.",)
        elif kept and isinstance(error, RunError) and not isinstance(error, Stopped):
            error.args = (f"{error} The last good weights are in {kept}.",)
        raise
