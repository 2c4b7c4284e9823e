"""Pickled weights as safetensors: read in a process of its own that accepts tensors only, and ends afterwards.

Torch's restricted reader refuses every pickle that names anything but tensors and plain containers, so no code of the
file runs. The process of its own keeps a reader that fails, or takes too much memory, away from this one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from unweave.errors import RunError, UsageError
from unweave.storage import sync_folder

NESTED = ("state_dict", "model_state_dict", "model", "module", "weights")  # where checkpoints keep their weights
REFUSED = 3  # exit code of a process that refused the file
CHILD = "import sys; from unweave.requests.unpickling import read_and_write; sys.exit(read_and_write(*sys.argv[1:]))"
NAMED = re.compile(r"GLOBAL (\S+)")  # what a pickle would have run, in torch's message


def convert_weights(file: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Turn pickled weights into a safetensors file.

    Args:
        file: The file: a state dict that torch saved, or a checkpoint that holds one.
        out: The file to write; it must be new. Default: beside the file, ``model.safetensors`` for the
            ``pytorch_model.bin`` of a checkpoint, otherwise its own name with the ending ``.safetensors``.

    Returns:
        The file that was written.

    Raises:
        UsageError: The file does not exist, holds more than tensors, or would be overwritten.
        RunError: The file cannot be read or written.

    >>> import tempfile
    >>> where = Path(tempfile.mkdtemp())
    >>> torch.save({"weight": torch.ones(2)}, where / "pytorch_model.bin")
    >>> convert_weights(where / "pytorch_model.bin").name
    'model.safetensors'
    """
    source = Path(file)
    target = Path(out) if out is not None else _beside(source)
    if not source.is_file():
        raise UsageError(f"{source} is not a file. Give a file of pickled weights, such as pytorch_model.bin.")
    if source.suffix == ".safetensors":
        raise UsageError(f"{source} is safetensors already. There is nothing to convert.")
    if target.exists():
        raise UsageError(f"{target} exists already. Choose another --out, or remove it.")
    partial = target.with_name(f"{target.name}.partial")
    command = [sys.executable, "-c", CHILD, str(source.resolve()), str(partial.resolve())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        if done.returncode == REFUSED:
            raise UsageError(done.stderr.strip().splitlines()[-1])
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RunError(f"{source} cannot be converted (exit code {done.returncode}): {last}")
        partial.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return target


def _beside(source: Path) -> Path:
    if not source.name:
        raise UsageError(f"{source} is not the name of a file. Give the file to convert.")
    name = "model.safetensors" if source.name == "pytorch_model.bin" else f"{source.stem}.safetensors"
    if source.name.startswith("adapter_model"):
        name = "adapter_model.safetensors"
    return source.with_name(name)


def _environment() -> dict[str, str]:
    """Return the variables that a Python process needs. Credentials are not among them."""
    needed = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "SYSTEMROOT")
    return {name: os.environ[name] for name in needed if name in os.environ} | {"CUDA_VISIBLE_DEVICES": ""}


def tensors_of(content: Any) -> dict[str, Tensor]:
    """Return the tensors of a state dict, or of the one in a checkpoint. Each gets memory of its own.

    >>> list(tensors_of({"epoch": 3, "state_dict": {"weight": torch.ones(2)}}))
    ['weight']
    """
    for name in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    if not isinstance(content, Mapping):
        raise UsageError(f"it holds a {type(content).__name__}, not tensors by name")
    found = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    other = [name for name, value in content.items() if not isinstance(value, Tensor)]
    if not found or other:
        named = f"also {other[0]!r}, a {type(content[other[0]]).__name__}" if found else "no tensors by name"
        raise UsageError(f"it holds {named}. Save a state dict alone: torch.save(model.state_dict(), path)")
    return {name: tensor.detach().contiguous().clone() for name, tensor in found.items()}


def read_and_write(source: str, target: str) -> int:
    """Read, check and write in this process; return its exit code. A message goes to standard error."""
    try:
        content = torch.load(source, map_location="cpu", weights_only=True)
        safetensors.torch.save_file(tensors_of(content), target, metadata={"format": "pt"})
    except UsageError as error:
        print(f"{source} cannot be converted: {error}.", file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # whatever a file that nobody trusts makes torch raise
        named = NAMED.search(str(error))
        more = f" It would run {named[1]}." if named else ""
        print(f"{source} is refused: it is damaged, or holds more than tensors.{more}", file=sys.stderr)
        return REFUSED
    return 0
