"""Weights that are cut among processes, by torch's ``fully_shard`` (FSDP2).

A sharded weight is a tensor of torch's own kind, a ``DTensor``: it looks whole, and every process holds some of it.
Here is what has to know the difference. For ordinary tensors every function gives back what it got.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.runtime import processes


def is_wanted(asked: bool | None) -> bool:
    """Tell whether weights are to be cut: if that was asked for, here or of ``accelerate launch --use_fsdp``.

    In one process there is nothing to cut.
    """
    if asked is None:
        asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1", "yes")
    return asked and processes.count() > 1


def sharded(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy of the model on the device, whose weights are cut among the processes, layer by layer."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise UsageError(
            f"Cutting weights among processes needs torch 2.6 or newer, not {torch.__version__}."
        ) from error

    for name, parameter in model.named_parameters():
        if parameter.ndim == 0:
            raise UsageError(
                f"The weight {name} is a single number, which cannot be cut among processes. Do not shard."
            )
    mesh = init_device_mesh(device.type, (processes.count(),))
    found = copy.deepcopy(model)
    for layer in layers_of(found):
        fully_shard(layer, mesh=mesh)
    fully_shard(found, mesh=mesh)
    return found.to(device)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the parts of a model whose weights are brought together at a time: its blocks, as far as it names them.

    Those are the modules that a Hugging Face model says not to split, or the entries of module lists. A block that
    shares weights with the rest of the model stays with the rest.

    >>> [len(list(layer.parameters())) for layer in layers_of(nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]))]
    [2]
    """
    blocks = _named_blocks(model) or _listed_blocks(model)
    inner = {id(part) for block in blocks for part in list(block.modules())[1:]}
    uses = _weights_used(model)
    return [block for block in blocks if id(block) not in inner and _owns_its_weights(block, uses)]


def _named_blocks(model: nn.Module) -> list[nn.Module]:
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _listed_blocks(model: nn.Module) -> list[nn.Module]:
    return [block for module in model.modules() if isinstance(module, nn.ModuleList) for block in module]


def _weights_used(module: nn.Module) -> Counter[int]:
    """Return in how many places of a module each weight is used."""
    return Counter(id(weight) for part in module.modules() for weight in part.parameters(recurse=False))


def _owns_its_weights(block: nn.Module, uses: Counter[int]) -> bool:
    own = _weights_used(block)
    return bool(own) and all(uses[weight] == places for weight, places in own.items())


def is_cut(tensor: Tensor) -> bool:
    """Tell whether a tensor is cut among processes."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor."""
    found: Tensor = tensor.to_local() if is_cut(tensor) else tensor  # type: ignore[attr-defined]
    return found


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor in one piece, in every process."""
    found: Tensor = tensor.full_tensor() if is_cut(tensor) else tensor  # type: ignore[attr-defined]
    return found


def cut_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Cut a tensor that every process has in one piece as another of its shape is cut."""
    if not is_cut(pattern):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    there: Any = pattern
    found: Tensor = distribute_tensor(
        tensor.to(pattern.device), there.device_mesh, there.placements, src_data_rank=None
    )
    return found


def all_cut_like(tensors: Sequence[Tensor], patterns: Sequence[Tensor]) -> list[Tensor]:
    """Cut tensors as those of another list are cut: one by one, or each as the last one of its shape."""
    if [tensor.shape for tensor in tensors] == [pattern.shape for pattern in patterns]:
        return [cut_like(tensor, pattern) for tensor, pattern in zip(tensors, patterns, strict=True)]
    by_shape = {pattern.shape: pattern for pattern in patterns}
    return [cut_like(tensor, by_shape.get(tensor.shape, tensor)) for tensor in tensors]


def collected(tensors: Mapping[str, Tensor], *, everywhere: bool = False) -> dict[str, Tensor]:
    """Return tensors in one piece, for the first process to write; others get them only ``everywhere``."""
    if not any(map(is_cut, tensors.values())):
        return dict(tensors)
    found = {}
    for name, tensor in tensors.items():  # one at a time, so that the device never holds all of them
        in_one_piece = whole(tensor).detach().cpu()
        if everywhere or processes.is_first():
            found[name] = in_one_piece
    return found


@torch.no_grad()
def load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights in one piece into a model, which may be cut."""
    there = model.state_dict()
    cut = {name: cut_like(tensor, there[name]) if name in there else tensor for name, tensor in state.items()}
    model.load_state_dict(cut)


@torch.no_grad()
def copy_into(model: nn.Module, source: nn.Module) -> None:
    """Give a model the weights and buffers of another that is cut in the same way."""
    for mine, other in ((model.parameters(), source.parameters()), (model.buffers(), source.buffers())):
        for tensor, value in zip(mine, other, strict=True):
            local(tensor).copy_(local(value))


def total(tensors: Iterable[Tensor]) -> Tensor:
    """Return the sum of single numbers, some of which may be sums over cut tensors.

    >>> total([torch.tensor(1.0), torch.tensor(2.0)])
    tensor(3.)
    """
    return torch.stack([whole(tensor) for tensor in tensors]).sum()
