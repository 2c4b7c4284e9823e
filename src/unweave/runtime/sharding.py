"""Weights that are sharded among processes, by torch's ``fully_shard`` (FSDP2).

A sharded weight is a ``DTensor`` of torch. It has the shape of the whole weight, and every process holds one shard.
The functions here are the code that has to know the difference. They return ordinary tensors unchanged.
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
    """Tell whether to shard weights: if the caller or ``accelerate launch --use_fsdp`` asked for it.

    A single process never shards.
    """
    if asked is None:
        asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1", "yes")
    return asked and processes.count() > 1


def sharded(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy of the model on the device, with its weights sharded among the processes, layer by layer."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise UsageError(
            f"Sharding weights needs torch 2.6 or newer, but this is {torch.__version__}. Update torch."
        ) from error

    for name, parameter in model.named_parameters():
        if parameter.ndim == 0:
            raise UsageError(
                f"The weight {name} is a single number, which cannot be sharded. Run without sharding (shard=False)."
            )
    mesh = init_device_mesh(device.type, (processes.count(),))
    found = copy.deepcopy(model)
    for layer in layers_of(found):
        fully_shard(layer, mesh=mesh)
    fully_shard(found, mesh=mesh)
    return found.to(device)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of a model, whose weights are gathered one block at a time.

    Blocks are the modules that a Hugging Face model declares not to split, or else the entries of module lists. A
    block that shares weights with the rest of the model is left out and stays with the rest.

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
    """Tell whether a tensor is sharded among processes."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """Return the shard of a tensor that this process holds."""
    found: Tensor = tensor.to_local() if is_cut(tensor) else tensor  # type: ignore[attr-defined]
    return found


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor, in every process."""
    found: Tensor = tensor.full_tensor() if is_cut(tensor) else tensor  # type: ignore[attr-defined]
    return found


def cut_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Shard a tensor that every process holds whole, in the way of another tensor of its shape."""
    if not is_cut(pattern):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    there: Any = pattern
    found: Tensor = distribute_tensor(
        tensor.to(pattern.device), there.device_mesh, there.placements, src_data_rank=None
    )
    return found


def all_cut_like(tensors: Sequence[Tensor], patterns: Sequence[Tensor]) -> list[Tensor]:
    """Shard tensors in the way of another list: one by one, or each like the last tensor of its shape there."""
    if [tensor.shape for tensor in tensors] == [pattern.shape for pattern in patterns]:
        return [cut_like(tensor, pattern) for tensor, pattern in zip(tensors, patterns, strict=True)]
    by_shape = {pattern.shape: pattern for pattern in patterns}
    return [cut_like(tensor, by_shape.get(tensor.shape, tensor)) for tensor in tensors]


def collected(tensors: Mapping[str, Tensor], *, everywhere: bool = False) -> dict[str, Tensor]:
    """Return whole tensors in the first process, which writes them, or in every process if ``everywhere``."""
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
    """Load whole weights into a model, which may be sharded."""
    there = model.state_dict()
    cut = {name: cut_like(tensor, there[name]) if name in there else tensor for name, tensor in state.items()}
    model.load_state_dict(cut)


@torch.no_grad()
def copy_into(model: nn.Module, source: nn.Module) -> None:
    """Copy the weights and buffers of another model that is sharded in the same way."""
    for mine, other in ((model.parameters(), source.parameters()), (model.buffers(), source.buffers())):
        for tensor, value in zip(mine, other, strict=True):
            local(tensor).copy_(local(value))


def total(tensors: Iterable[Tensor]) -> Tensor:
    """Return the sum of single numbers. Some of them may be sums over sharded tensors.

    >>> total([torch.tensor(1.0), torch.tensor(2.0)])
    tensor(3.)
    """
    return torch.stack([whole(tensor) for tensor in tensors]).sum()
