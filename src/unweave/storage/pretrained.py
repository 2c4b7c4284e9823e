"""Models of transformers: saved to a folder that ``from_pretrained`` opens, and read back from one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.storage.json_files import read_json

ADAPTER_CONFIG = "adapter_config.json"


def is_transformers_model(model: nn.Module) -> bool:
    """Tell whether a model is one of transformers, or of a class made from one. Nothing is imported."""
    return any(
        base.__name__ == "PreTrainedModel" and base.__module__.startswith("transformers.")
        for base in type(model).__mro__
    )


def is_pretrained(model: nn.Module) -> bool:
    """Tell whether ``from_pretrained`` could open the model if it were saved.

    The configuration of the model must describe it. A layer that was replaced by hand would be lost without a word.

    >>> is_pretrained(nn.Linear(2, 2))
    False
    """
    if not is_transformers_model(model):
        return False
    config = copy.deepcopy(model.config)
    try:
        with quiet_transformers(), torch.device("meta"):
            fresh = type(model)(config)
    except (TypeError, ValueError, RuntimeError, ImportError):  # a class of the user's, with arguments of its own
        return False
    return _anatomy(fresh) == _anatomy(model)


def _anatomy(model: nn.Module) -> tuple[dict[str, type], dict[str, torch.Size]]:
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    return {name: type(module) for name, module in model.named_modules()}, shapes


def save_model_folder(model: nn.Module, folder: Path) -> None:
    """Save a model of transformers with its configuration, in the form that other programs expect."""
    with quiet_transformers():
        model.save_pretrained(folder)  # type: ignore[operator]


def open_model_folder(folder: Path, kind: Any) -> dict[str, Tensor]:
    """Return the weights of a model's folder, under the names that the model has in memory.

    Files may have other names for them than the model, and leave out tied ones: ``from_pretrained`` knows.

    Args:
        folder: The folder, with configuration and weights.
        kind: The class of the model.
    """
    if (folder / ADAPTER_CONFIG).exists():  # transformers would go and look for the model below it
        raise UsageError(f"{folder} holds an adapter, not a whole model. Give the folder of the run.")
    try:
        with quiet_transformers():
            model, about = kind.from_pretrained(
                folder, dtype="auto", local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError, TypeError, RuntimeError, KeyError, SafetensorError) as error:
        raise UsageError(f"{folder} cannot be opened as a {kind.__name__}: {_first_line(error)}") from error
    odd = [*about["missing_keys"], *about["unexpected_keys"], *(key for key, *_ in about["mismatched_keys"])]
    if odd:
        raise UsageError(f"{folder} does not fit the model {kind.__name__}: {sorted(odd)[0]} is missing or different.")
    weights: dict[str, Tensor] = model.state_dict()
    return weights


def kind_of_folder(folder: Path) -> Any:
    """Return the class of transformers that a folder's configuration names, or None. No code of the folder is run."""
    file = folder / "config.json"
    content = read_json(file) if file.exists() else None
    named = content.get("architectures") if isinstance(content, dict) else None
    if not (isinstance(named, list) and named and isinstance(named[0], str)):
        return None
    try:
        import transformers
    except ImportError as error:
        raise UsageError(f"{folder} needs the package transformers: pip install transformers ({error}).") from error
    kind = getattr(transformers, named[0], None)
    return kind if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel) else None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from printing warnings about heads and token ids, and progress bars."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
