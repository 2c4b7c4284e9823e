"""Read and write a run's weights as safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping

import safetensors.torch
from torch import Tensor, nn

from unweave.errors import UsageError, as_path, require_type
from unweave.storage import read_weights


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file. Tied weights get their own memory, as the format needs."""
    content: bytes = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    )
    return content


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Load weights into a model of the same architecture: a safetensors file, or a folder that holds one.

    The folder may be that of a run, or that of a Hugging Face model, also with several files. Names and shapes are
    checked before any weights are read, where files and model call them alike.

    Args:
        model: The model to fill.
        path: The file or folder.

    Returns:
        The model given.

    Raises:
        UsageError: The weights cannot be read, or do not fit the model.

    >>> load_weights(nn.Linear(4, 2), "runs/17")
    Traceback (most recent call last):
    unweave.errors.UsageError: runs/17 cannot be read: the file does not exist.
    """
    require_type("model", model, nn.Module, "a torch nn.Module")
    tensors = read_weights(as_path("path", path), model)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UsageError(f"{path} does not fit the model: {error}") from error
    return model
