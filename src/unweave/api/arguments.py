"""What `unlearn` is given: refused before any work is done, where it cannot be used or would not be."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.engine import Computing
from unweave.engine.compiling import Compile
from unweave.errors import UsageError
from unweave.methods import Method, is_made_on_demand, require_initial, require_reference
from unweave.runs import check_folder
from unweave.runtime import Precision, processes
from unweave.settings import Settings
from unweave.tasks import cross_entropy


def require_use(
    method: type[Method], model: nn.Module, *, loss: Any, initial: Any, resume: bool, out: Any, kept: bool
) -> None:
    """Refuse arguments that cannot be used, or would not be."""
    _require_state(model, kept=kept)
    _require_loss(loss)
    if not torch.is_grad_enabled():
        raise UsageError(
            "Gradients are switched off here (torch.no_grad or inference_mode). Call unlearn outside of it."
        )
    if loss is not cross_entropy and not method.takes_loss:
        raise UsageError(f"{method.name} works on logits and labels, and takes no other loss. Leave loss= out.")
    require_initial(initial)
    if resume and out is None:
        raise UsageError("resume=True goes on with the run of a folder. Give it with out=.")


def _require_state(model: nn.Module, *, kept: bool) -> None:
    """Refuse weights without values and, where weights are kept on the way, what is none."""
    state = model.state_dict()
    extra = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if extra and kept:
        raise UsageError(
            f"The model's state holds {extra[0]}, a {type(state[extra[0]]).__name__}: only tensors can be kept and put "
            "back. Make what get_extra_state returns a tensor."
        )
    if any(tensor.is_meta for tensor in state.values() if isinstance(tensor, torch.Tensor)):
        raise UsageError("The model is on the device 'meta', where weights have no values. Load its weights first.")


def _require_loss(loss: Any) -> None:
    where = loss.__module__ if hasattr(loss, "__name__") else type(loss).__module__
    if not callable(loss) or str(where).startswith("torch.nn."):
        raise UsageError(
            "loss= must be a function of (model, batch) that returns one loss per sample. One of torch's takes scores "
            "and labels: lambda model, batch: torch_loss(model(batch[0]), batch[1])."
        )


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of the model, or say why there can be none."""
    try:
        return copy.deepcopy(model)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # of torch, where a tensor is the outcome of a computation
        raise UsageError(
            "The model cannot be copied, for it holds a tensor that came out of a computation with gradient: an "
            "activation that it keeps, or the weights of torch.nn.utils.weight_norm (parametrizations.weight_norm can "
            f"be copied). {str(error).partition('.')[0]}."
        ) from error


def check_reference(reference: Any, settings: Settings) -> None:
    """Refuse a reference that cannot be read; and one that nothing would read, unless it is made on demand."""
    if reference is None and not aims_at_retraining(settings):
        return
    require_reference(reference)
    if not is_made_on_demand(reference) and not aims_at_retraining(settings):
        raise UsageError("A reference was given, but only the method unweave reads it, with the goal retrain.")


def aims_at_retraining(settings: Settings) -> bool:
    """Tell whether a run is to look as if the forget data had never been trained on."""
    return getattr(settings, "goal", None) == "retrain"


def check_request(
    *,
    device: str | torch.device | None,
    precision: Precision,
    compile: Compile = "auto",
    out: str | os.PathLike[str] | None,
    resume: bool,
) -> torch.device:
    """Refuse what cannot work before any work is done; return the device."""
    where = Computing(device=device, precision=precision, compile=compile).check()
    if out is not None:
        processes.first(lambda: check_folder(Path(out), resume=resume))
    return where
