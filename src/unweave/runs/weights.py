"""Read and write a run's weights as safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.storage import (
    inside,
    read_json,
    read_tensors,
    refuse_pickled,
    require_shapes,
    tensor_shapes,
)

ADAPTER = "adapter"


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def save_adapter(model: nn.Module, folder: Path) -> None:
    """Write the adapter of a ``peft`` model, such as LoRA, in peft's own format; skip other models."""
    if hasattr(model, "peft_config"):
        # Trained embeddings are among the modules to save. For others peft would query the Hub.
        model.save_pretrained(os.fspath(folder), save_embedding_layers=False)  # type: ignore[operator]


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file. Tied weights get their own memory, as the format needs."""
    content: bytes = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    )
    return content


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Load weights into a model of the same architecture: a safetensors file, or a folder that holds one.

    A folder may also hold several files with an index, as Hugging Face models do. Names and shapes are checked before
    any weights are read.
    """
    given = Path(path)
    files = _files(given)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        found |= tensor_shapes(file)
    require_shapes(given, found, wanted)
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= read_tensors(file)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UsageError(f"{given} does not fit the model: {error}") from error
    return model


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
