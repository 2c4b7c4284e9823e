"""The weights of a saved model: one file, several with an index, or the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.storage.files import inside, refuse_pickled
from unweave.storage.json_files import read_json
from unweave.storage.layout import MODEL
from unweave.storage.pretrained import is_transformers_model, kind_of_folder, open_model_folder
from unweave.storage.tensors import read_tensors, require_kinds, require_shapes, tensor_shapes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def find_weights(path: Path) -> Path | None:
    """Return the file or the model's folder that holds the weights of a run or model; None if there are none.

    >>> find_weights(Path("nowhere")) is None
    True
    """
    if not path.is_dir():
        return path if path.exists() else None
    if (path / WEIGHTS).exists():
        return path if (path / "config.json").exists() else path / WEIGHTS
    if (path / INDEX).exists():
        return path
    return find_weights(path / MODEL) if (path / MODEL).is_dir() else None


def read_weights(path: Path, model: nn.Module | None = None) -> dict[str, Tensor]:
    """Return the weights of a file, of a model's folder or of a run's folder, by the names of the model in memory.

    Args:
        path: The file or folder.
        model: A model of the same architecture: names and shapes are compared with it before weights are read.

    Raises:
        UsageError: There are no weights, they do not fit the model, or they would have to be unpickled.
    """
    found = find_weights(path) or path
    files = _files(found)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        shapes |= tensor_shapes(file)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} if model else None
    tensors: dict[str, Tensor] = {}
    if shapes != wanted and (kind := _kind(found, model)) is not None:
        tensors = open_model_folder(found, kind)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wanted is not None:
        require_shapes(path, shapes, wanted)
    for file in files if not tensors else ():
        tensors |= read_tensors(file)
    if model is not None:
        require_kinds(path, tensors, model.state_dict())
    return tensors


def _kind(found: Path, model: nn.Module | None) -> Any:
    """Return the class of transformers that opens a model's folder; None if there is no such class or folder."""
    kind = kind_of_folder(found) if found.is_dir() else None
    if kind is None or model is None:
        return kind
    return type(model) if is_transformers_model(model) else None


def _files(given: Path) -> list[Path]:
    """Return the safetensors files at a path."""
    if not given.is_dir():
        return [given]
    if (given / WEIGHTS).exists() or not (given / INDEX).exists():
        for pickled in () if (given / WEIGHTS).exists() else given.iterdir():
            refuse_pickled(pickled)
        return [given / WEIGHTS]
    index = read_json(given / INDEX)
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names:
        raise UsageError(f"{given / INDEX} has no weight_map, so its weight files are unknown.")
    return [inside(given, name) for name in dict.fromkeys(map(str, names.values()))]
