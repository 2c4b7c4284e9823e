"""Checks of the arguments of `unlearn`, made before any work is done."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.api.split import Split
from unweave.engine import Compute, Limits
from unweave.errors import UsageError, require_type
from unweave.methods import Method
from unweave.runs import check_folder
from unweave.runtime import processes
from unweave.tasks import OwnLoss


def require_arguments(
    model: Any, split: Any, test: Any, guard: Any, compute: Any, *, resume: bool, out: str | os.PathLike[str] | None
) -> None:
    """Raise a `UsageError` for arguments of the wrong type, or that contradict each other."""
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("split", split, Split, "a Split of the training data")
    require_type("test", test, (Split, type(None)), "a Split of the test data")
    require_type("guard", guard, (Limits, Mapping, type(None)), "Limits, a mapping of them, or None")
    require_type("compute", compute, (Compute, type(None)), 'a Compute, such as uw.Compute(device="cuda:1")')
    require_type("out", out, (str, os.PathLike, type(None)), "the path of a folder")
    require_type("resume", resume, bool, "true or false")
    if not torch.is_grad_enabled():
        raise UsageError(
            "Gradients are switched off here (torch.no_grad or inference_mode). Call unlearn outside of it."
        )
    if resume and out is None:
        raise UsageError("resume=True resumes the run in a folder. Name the folder with out=.")


def require_task(method: Method, task: Any) -> None:
    """Raise a `UsageError` for a method that needs classes, and a task known by its loss alone."""
    if isinstance(task, OwnLoss) and not method.takes_loss:
        raise UsageError(f"{method.name} works on logits and labels, and takes no other loss. Omit task=.")


def require_model(model: nn.Module, *, kept: bool) -> None:
    """Reject meta tensors and, if weights will be saved, state that is not a tensor."""
    require_whole(model)
    state = model.state_dict()
    extra = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if extra and kept:
        raise UsageError(
            f"The model's state holds {extra[0]}, a {type(state[extra[0]]).__name__}, but only tensors can be saved "
            "and restored. Let get_extra_state return a tensor."
        )
    if any(tensor.is_meta for tensor in state.values() if isinstance(tensor, torch.Tensor)):
        raise UsageError("The model is on the device 'meta', where weights have no values. Load its weights first.")


def require_whole(model: nn.Module) -> None:
    """Raise for a model of transformers that is quantised, or spread over several devices.

    >>> require_whole(nn.Linear(1, 1))
    """
    for module in model.modules():
        if getattr(module, "is_quantized", False):
            raise UsageError(
                f"The weights of {type(module).__name__} are quantised, so they cannot be copied and compared. Load "
                "the model without quantization_config, in float32. An adapter (LoRA) keeps gradients and optimiser "
                "small."
            )
        devices = {str(device) for device in (getattr(module, "hf_device_map", None) or {}).values()}
        if len(devices) > 1:
            raise UsageError(
                f"{type(module).__name__} is spread over the devices {', '.join(sorted(devices))} (device_map). Load "
                "it without device_map; several processes may share its weights: compute=uw.Compute(shard=True)."
            )


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of the model. Raise a `UsageError` that says why it cannot be copied."""
    try:
        return copy.deepcopy(model)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # torch copies no tensor that was computed with gradients
        raise UsageError(
            "The model cannot be copied because it holds a tensor that was computed with gradients: a stored "
            "activation, or the weights of torch.nn.utils.weight_norm (use parametrizations.weight_norm instead). "
            f"{str(error).partition('.')[0]}."
        ) from error


def check_folder_asked(where: torch.device, *, out: str | os.PathLike[str] | None, resume: bool) -> torch.device:
    """Raise a `UsageError` if the folder cannot take this run, or has no run to resume. Return the device."""
    if out is not None:
        processes.first(lambda: check_folder(Path(out), resume=resume))
    return where
