"""How a model is run on a batch, whatever its outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unweave.data import Data, labels_of, tensors_of
from unweave.errors import UsageError, require_type


def raw_outputs(model: nn.Module, data: Data) -> Tensor:
    """Return the tensor that a model gives for a batch, in float32 or better.

    Mapping batches are passed by keyword without their labels. A model may return the tensor itself or an object with
    ``.logits``, as Hugging Face models do.

    >>> raw_outputs(nn.Flatten(), (torch.ones(2, 1, 3), torch.zeros(2))).shape
    torch.Size([2, 3])
    """
    output: Any
    if isinstance(data, Mapping):
        output = model(**{name: value for name, value in data.items() if name != "labels"})
    else:
        output = model(data[0])
    scores = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(scores, Tensor):
        raise UsageError(
            f"The model must return a tensor, or an object with .logits; it returned {type(output).__name__}."
        )
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def require_batch(model: Any, data: Any) -> None:
    """Raise a `UsageError` for what is no model, or no batch.

    >>> require_batch(nn.Flatten(), torch.zeros(2))
    Traceback (most recent call last):
    unweave.errors.UsageError: data must be a pair (inputs, labels) or a mapping with "labels", not Tensor.
    """
    require_type("model", model, nn.Module, "a torch nn.Module")
    is_pair = isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor)
    if not is_pair and not (isinstance(data, Mapping) and isinstance(data.get("labels"), Tensor)):
        raise UsageError(f'data must be a pair (inputs, labels) or a mapping with "labels", not {type(data).__name__}.')


def explained(model: nn.Module, data: Data, *, run: Callable[[nn.Module, Data], Tensor] = raw_outputs) -> Tensor:
    """Return what `raw_outputs`, or another function, returns; name the inputs where the model cannot take them.

    >>> explained(nn.Flatten(5), (torch.zeros(1, 5), torch.tensor([0])))
    Traceback (most recent call last):
    unweave.errors.UsageError: The model cannot take a sample of float32 (5): Dimension out of range (expected to be...
    """
    try:
        return run(model, data)
    except (torch.OutOfMemoryError, UsageError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        inputs = [tensor for tensor in tensors_of(data) if tensor is not labels_of(data)]
        kinds = [f"{str(one.dtype).removeprefix('torch.')} ({', '.join(map(str, one.shape[1:]))})" for one in inputs]
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"The model cannot take a sample of {' and '.join(kinds)}: {reason}") from error
