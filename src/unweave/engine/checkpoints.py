"""Checkpoints hold the weights, the state of every phase and the run's progress, in files that cannot run code.

A checkpoint is a safetensors file and a JSON file of the same name. Both are written under a temporary name,
synced and renamed. The JSON file comes last, so a checkpoint is either complete or absent. It holds the SHA-256
digests of the weights file and of itself. If a file was truncated or changed, the checkpoint before it is used.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from unweave.errors import RunError, RunWarning, UsageError
from unweave.runtime import processes
from unweave.storage import canonical, read_json, read_tensors, sha256, sha256_of_file, sync_folder, write_whole

EVERY_SECONDS = 60.0
SPACING = 20  # least interval, in multiples of the writing time: a large model would spend its time writing
FORMAT = {"format": "unweave-checkpoint", "version": 1}
NAME = re.compile(r"\d{2}-\d{8}")
UNREADABLE = (UsageError, OSError, ValueError, KeyError, TypeError)  # what reading a damaged checkpoint may raise


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: its phase, the steps done in that phase, tensors and plain values."""

    phase: int
    step: int
    tensors: Mapping[str, Tensor]
    extra: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of its files; names sort in the order of the run."""
        return f"{self.phase:02d}-{self.step:08d}"


class CheckpointFolder:
    """The checkpoints in one folder: the newest two, and one from the start of every phase but the first.

    A checkpoint is due after ``every_seconds`` of running time (on a monotonic clock) or, if given, ``every_steps``
    steps, whichever comes first. By default the time is one minute or 20 times what writing the last one took,
    whichever is longer.
    """

    def __init__(self, folder: Path, *, every_seconds: float | None = None, every_steps: int | None = None) -> None:
        if (every_seconds is not None and every_seconds < 0) or (every_steps is not None and every_steps < 1):
            raise UsageError(
                f"Checkpoints every {every_seconds} seconds or {every_steps} steps: "
                "seconds must be at least 0 and steps at least 1."
            )
        self.folder, self.every_seconds, self.every_steps = folder, every_seconds, every_steps
        self._last, self._steps = time.monotonic(), 0
        self._writing = 0.0  # seconds that writing the last one took
        self._whole: list[str] = []  # names that this process wrote or checked, oldest first

    def due(self) -> bool:
        """Count one step and return whether a checkpoint is due."""
        self._steps += 1
        by_steps = self.every_steps is not None and self._steps >= self.every_steps
        seconds = max(EVERY_SECONDS, SPACING * self._writing) if self.every_seconds is None else self.every_seconds
        return by_steps or time.monotonic() - self._last >= seconds

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove those no longer needed. Only the first process writes."""
        begun = time.monotonic()
        processes.first(lambda: self._save(checkpoint))
        self._last, self._steps = time.monotonic(), 0
        self._writing = self._last - begun

    def _save(self, checkpoint: Checkpoint) -> None:
        name = checkpoint.name
        weights, progress = self.folder / f"{name}.safetensors", self.folder / f"{name}.json"
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in checkpoint.tensors.items()}
        data = safetensors.torch.save(tensors)
        content = {
            **FORMAT,
            **checkpoint.extra,
            "phase": checkpoint.phase,
            "step": checkpoint.step,
            "weights_bytes": len(data),
            "weights_sha256": sha256(data),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(weights, data, private=True)  # steps towards the forgotten samples
            about = json.dumps({**content, "sha256": sha256(canonical(content))})
            write_whole(progress, about.encode(), private=True)
            sync_folder(self.folder)
        except OSError as error:
            if not progress.exists():
                weights.unlink(missing_ok=True)
            before = f" The checkpoint before it, {self._whole[-1]}, is intact." if self._whole else ""
            raise RunError(
                f"The checkpoint {name} cannot be written to {self.folder}: {error}.{before} "
                "Free disk space or give another folder, then resume."
            ) from error
        self._whole = [*(other for other in self._whole if other != name), name]
        self.prune(keep=self._whole[-2:])

    def prune(self, *, keep: list[str] | None = None) -> None:
        """Remove partial files, and all checkpoints within a phase except those in ``keep``. Links are not followed."""
        if self.folder.is_symlink():
            return
        for path in [*self.folder.glob("*.json"), *self.folder.glob("*.safetensors"), *self.folder.glob("*.partial")]:
            if path.stem not in (keep or []) and not path.stem.endswith("-00000000"):
                path.unlink(missing_ok=True)

    def between(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Yield the number of every phase that another one followed, and the model's weights at its end.

        A phase with damaged weights is skipped with a warning.
        """
        for file in processes.first(self._whole_starts):
            tensors = read_tensors(file.with_suffix(".safetensors"))
            weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
            yield int(file.stem[:2]) - 1, weights

    def _whole_starts(self) -> list[Path]:
        found = []
        for file in sorted(self.folder.glob("*-00000000.json")):
            try:
                _read(file)
            except UNREADABLE as error:
                warnings.warn(
                    f"The checkpoint {file} is damaged, so the stage before it is not evaluated: {error}",
                    RunWarning,
                    stacklevel=2,
                )
                continue
            found.append(file)
        return found

    def newest_file(self) -> Path | None:
        """Return the weights file of the newest checkpoint, or None if there is none."""
        found = self._files()
        return found[0].with_suffix(".safetensors") if found else None

    def newest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None. Damaged ones are skipped with a warning."""
        mine: list[Checkpoint] = []
        file = processes.first(lambda: self._find_newest(mine))
        if file is None:
            return None
        return mine[0] if mine else _read(file)  # the other processes read the file that the first found

    def _find_newest(self, found: list[Checkpoint]) -> Path | None:
        skipped = False
        for file in self._files():
            try:
                found.append(_read(file))
            except UNREADABLE as error:
                warnings.warn(f"The checkpoint {file} is damaged and skipped: {error}", RunWarning, stacklevel=2)
                skipped = True
                continue
            self._whole = [file.stem]
            return file
        if skipped:
            warnings.warn(f"No checkpoint in {self.folder} is intact. The run starts again.", RunWarning, stacklevel=2)
        return None

    def _files(self) -> list[Path]:
        """Return the JSON files of the checkpoints, newest first."""
        return sorted((path for path in self.folder.glob("*.json") if NAME.fullmatch(path.stem)), reverse=True)


def _read(file: Path) -> Checkpoint:
    """Read a checkpoint, or raise an error that says what is wrong with it."""
    content = read_json(file)
    if not isinstance(content, dict) or {key: content.get(key) for key in FORMAT} != FORMAT:
        raise UsageError("it is not a checkpoint of this version.")
    if content.pop("sha256", None) != sha256(canonical(content)):
        raise UsageError(f"{file.name} does not match its own checksum.")
    weights = file.with_suffix(".safetensors")
    size, digest = content.pop("weights_bytes"), content.pop("weights_sha256")
    if weights.stat().st_size != size or sha256_of_file(weights) != digest:
        raise UsageError(f"{weights.name} does not match its checksum.")
    found = Checkpoint(content.pop("phase"), content.pop("step"), read_tensors(weights), content)
    if found.name != file.stem:
        raise UsageError(f"{file.name} has the wrong name: its content is checkpoint {found.name}.")
    return found
