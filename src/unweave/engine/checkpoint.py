"""Checkpoints: the weights, what every phase keeps, and how far the run is, in files that cannot run code.

A checkpoint is a safetensors file and a JSON file of the same name. Both are written under a temporary name,
synced and renamed; the JSON file comes last, so that a checkpoint exists whole or not at all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from unweave.errors import UsageError

EVERY_SECONDS = 60.0


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood: the phase and the number of steps done in it, tensors, and plain values."""

    phase: int
    step: int
    tensors: Mapping[str, Tensor]
    extra: Mapping[str, Any]


class Checkpoints:
    """The checkpoints in one folder. At most one is kept per finished phase, and the newest."""

    def __init__(self, folder: Path, *, every_seconds: float = EVERY_SECONDS) -> None:
        self.folder, self.every_seconds = folder, every_seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Tell whether the last checkpoint is old enough for a new one."""
        return time.monotonic() - self._last >= self.every_seconds

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove older ones from the middle of a phase."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{checkpoint.phase:02d}-{checkpoint.step:08d}"
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in checkpoint.tensors.items()}
        write_whole(self.folder / f"{name}.safetensors", safetensors.torch.save(tensors))
        progress = {"phase": checkpoint.phase, "step": checkpoint.step, **checkpoint.extra}
        write_whole(self.folder / f"{name}.json", json.dumps(progress).encode())
        self._last = time.monotonic()
        self.prune(keep=name)

    def prune(self, *, keep: str = "") -> None:
        """Remove checkpoints from the middle of a phase, except the one named."""
        for path in self.folder.glob("*.json"):
            if path.stem != keep and not path.stem.endswith("-00000000"):
                path.unlink()
                path.with_suffix(".safetensors").unlink(missing_ok=True)

    def between(self, phases: int) -> Iterator[dict[str, Tensor]]:
        """Yield the weights of the model as they were after each phase but the last."""
        for number in range(1, phases):
            tensors = safetensors.torch.load_file(self.folder / f"{number:02d}-00000000.safetensors")
            yield {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}

    def newest_file(self) -> Path | None:
        """Return the weights file of the newest checkpoint, or None if there is none."""
        found = sorted(self.folder.glob("*.json"))
        return found[-1].with_suffix(".safetensors") if found else None

    def newest(self) -> Checkpoint | None:
        """Read the newest checkpoint, or None if there is none."""
        file = self.newest_file()
        if file is None:
            return None
        try:
            progress = json.loads(file.with_suffix(".json").read_text())
            tensors = safetensors.torch.load_file(file)
            return Checkpoint(phase=progress.pop("phase"), step=progress.pop("step"), tensors=tensors, extra=progress)
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise UsageError(
                f"The checkpoint {file} cannot be read ({error}). Remove it and resume from the one before."
            ) from error
