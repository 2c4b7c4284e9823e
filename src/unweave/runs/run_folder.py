"""The folder of one run: where it works, and how it gets its final name."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from unweave.engine import CheckpointFolder, CollapseError
from unweave.errors import RunError, Stopped, UsageError
from unweave.runs.output_paths import absolute, refuse_existing, tidy, unfinished
from unweave.runs.saved_model import SaveWith, save_model
from unweave.runs.weights import to_bytes
from unweave.runtime import processes
from unweave.storage import (
    MODEL,
    RUN,
    SCORES,
    Lock,
    configuration_file,
    find_weights,
    read_configuration,
    read_json,
    refuse_links,
    sync_folder,
    write_whole,
)

FORMAT = {"format": "unweave-run", "version": 2}
LAST_GOOD = "last-good.safetensors"
CARD = "README.md"  # of the model, in its folder
OF_OLDER_VERSIONS = ("config.json", "begun")  # files of an unfinished run, now entries of run.json
MAY_CHANGE = ("limits",)  # a resumed run may change these, because they change no result


def check_folder(target: Path, *, resume: bool) -> None:
    """Raise an error if a run cannot begin at the target or, with ``resume``, if there is none to resume."""
    work = unfinished(target)
    tidy(target)
    if resume and not work.exists() and (target / SCORES).exists():
        raise UsageError(f"The run at {target} is finished: there is nothing to resume.")
    refuse_existing(target)
    if work.exists() and not resume:
        raise UsageError(f"{work} holds an unfinished run. Resume it (resume=True, --resume) or remove it.")
    if resume and not work.exists():
        raise UsageError(f"There is no unfinished run at {work} to resume. Start it without resume.")
    there = next(folder for folder in (work, *work.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there):  # fail now, not after all the work
            pass
    except OSError as error:
        raise RunError(f"The output folder {target} cannot be written: {error}") from error


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists. Of a link, only the link is removed."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


class OutputFolder:
    """The folder of one run. The run works beside it, in ``NAME.unfinished``, which is renamed at the end.

    One run at a time works in it. If a run has several processes, the first writes and the others read.
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
        self.target, self.config = absolute(target), config
        try:
            json.dumps(config)
        except TypeError as error:
            raise UsageError(f"The configuration must hold only values that JSON supports: {error}") from error
        self.work = unfinished(target)
        self.checkpoints = CheckpointFolder(
            self.work / "checkpoints", every_seconds=checkpoint_seconds, every_steps=checkpoint_steps
        )
        self.lock: Lock | None = None
        self.worked_out: nn.Module | None = None  # the model after the last step, until it is saved
        processes.first(lambda: self._open(resume=resume))
        if not processes.everyone(self.work.is_dir()):
            if self.lock:
                self.abandon()
            raise UsageError(f"{self.work} is not visible to every process. Use a folder that all machines share.")

    def _open(self, *, resume: bool) -> None:
        try:
            if not resume:
                self.work.mkdir(parents=True)
            elif self.work.is_symlink():
                raise UsageError(f"{self.work} is a link, so the run would work elsewhere. Remove it.")
            refuse_links(self.work)
            self.lock = Lock(self.work / "lock")
            try:
                begun = self._begun_before() if resume else None
                begun = begun or datetime.now(UTC).isoformat(timespec="seconds")
                self._write_about({**FORMAT, "begun": begun, "configuration": self.config})
            except BaseException:
                self.lock.release()
                raise
            for name in (LAST_GOOD, *OF_OLDER_VERSIONS):
                (self.work / name).unlink(missing_ok=True)
        except FileExistsError:
            raise UsageError(f"{self.work} holds an unfinished run. Resume it or choose another --out.") from None
        except OSError as error:
            if not resume:
                remove_folder(self.work)
            raise RunError(f"The output folder {self.target} cannot be written: {error}") from error

    def _begun_before(self) -> str | None:
        """Return when the run was first started, after a check that it is still the same run."""
        path = configuration_file(self.work)
        if not path.exists() and self.checkpoints.newest_file() is None:
            return None  # the run stopped before it wrote anything
        try:
            before = read_configuration(self.work)
            if not isinstance(before, dict):
                raise UsageError(f"{path} is not a configuration.")
        except UsageError as error:
            raise UsageError(f"{error} Remove the folder {self.work}.") from error
        now = json.loads(json.dumps(self.config))
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key) and key not in MAY_CHANGE)
        if changed:
            raise UsageError(
                f"The unfinished run at {self.work} was started with different values for {', '.join(changed)}. "
                "Resume with the same values, or remove the folder."
            )
        said = read_json(path).get("begun") if path.name == RUN else None
        return said if isinstance(said, str) else None

    def _write_about(self, about: Mapping[str, Any]) -> None:
        # For its owner only: who knows the data could find the forgotten samples from the hash of the split by trying.
        self._write(RUN, json.dumps(about, indent=2) + "\n", private=True)

    @property
    def begun(self) -> str:
        """When the run was first started, in UTC."""
        return processes.first(lambda: str(read_json(self.work / RUN)["begun"]))

    def _write(self, name: str, content: str, *, private: bool = False) -> None:
        write_whole(self.work / name, content.encode(), private=private)

    def abandon(self, good: Mapping[str, Tensor] | None = None) -> Path | None:
        """Stop using the folder, and remove it if it cannot be resumed or used. Return the last good weights' file.

        ``good`` are the weights at the last passed check. Without them, the newest checkpoint is used, if there is one.
        """
        kept = self.checkpoints.newest_file()
        if self.lock is None:  # not the first process
            return kept
        try:
            if good is not None:
                write_whole(self.work / LAST_GOOD, to_bytes(good), private=True)
                kept = self.work / LAST_GOOD
        except OSError:
            pass  # the checkpoint is still there, if there is one
        self.lock.release()
        if kept is None and find_weights(self.work) is None:
            remove_folder(self.work)
        return kept

    def finish(
        self,
        model: nn.Module,
        texts: Mapping[str, str],
        *,
        about: Mapping[str, Any],
        card: str,
        beside: SaveWith | None = None,
    ) -> None:
        """Write the results, then give the folder its final name.

        Args:
            model: The unlearned model.
            texts: Files by name. Only their owner can read them: exact numbers may tell who was forgotten.
            about: What is now known about the run, for run.json.
            card: The model card, for a model that has a folder.
            beside: What is saved with the model.
        """
        processes.first(lambda: self._finish(model, texts, about, card, beside or SaveWith()))

    def _finish(
        self,
        model: nn.Module,
        texts: Mapping[str, str],
        about: Mapping[str, Any],
        card: str,
        beside: SaveWith,
    ) -> None:
        try:
            save_model(model, self.work, beside)
            if (self.work / MODEL).exists():
                self._write(f"{MODEL}/{CARD}", card)
            for name, text in texts.items():
                self._write(name, text, private=True)
            before = read_json(self.work / RUN)
            self._write_about({**before, **about, "configuration": before["configuration"]})
            sync_folder(self.work)
            refuse_existing(self.target)
            is_here = self.target.exists() and self.target.samefile(os.curdir)
            if self.target.exists():
                self.target.rmdir()  # an empty folder that the user made
            if self.lock:
                self.lock.release()
            self.work.rename(self.target)
            if is_here:  # the folder that this process was in is gone, and relative paths would lead nowhere
                os.chdir(self.target)
            sync_folder(self.target.parent)
            CheckpointFolder(self.target / "checkpoints").prune()
        except (OSError, SafetensorError) as error:
            raise RunError(f"The results cannot be written to {self.target}: {error}") from error


@contextmanager
def left_in_order(folder: OutputFolder | None) -> Iterator[None]:
    """If a run does not finish, leave its folder ready to resume, with the last good weights."""
    try:
        yield
    except BaseException as error:
        stopped = error.good if isinstance(error, CollapseError) else None
        good = stopped.weights if stopped and not stopped.is_original else None  # no copy of what knows the forget data
        worked_out = folder.worked_out if folder else None
        kept = folder.abandon(worked_out.state_dict() if worked_out else good) if folder else None
        if kept and worked_out and kept.name == LAST_GOOD and isinstance(error, UsageError | RunError):
            error.args = (f"{error} All steps were finished; the unlearned weights are in {kept}.",)
        elif kept and isinstance(error, RunError) and not isinstance(error, Stopped):
            error.args = (f"{error} The last good weights are in {kept}.",)
        raise
