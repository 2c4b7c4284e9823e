"""A phase: a loop of steps that reads like the algorithm."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from unweave.data import RETAINED
from unweave.engine.workbench import Workbench
from unweave.runtime import all_cut_like, collected, cut_like, is_cut, load

Logged: TypeAlias = "Mapping[str, Tensor | float]"
State: TypeAlias = "dict[str, Tensor]"


class Phase(ABC):
    """One loop of a method. Subclasses define what they keep, how many steps they take, and what a step does.

    The engine calls ``prepare`` (always), ``begin`` (unless the phase is resumed), then ``step`` for each number from
    0 to ``steps`` − 1, then ``finish``. A phase whose length is found on the way sets ``steps`` to the most that it may
    take, and says after a step whether it `is_over`. Attributes named in ``keeps`` are the phase's whole state:
    tensors, lists of tensors, optimisers or modules, which the engine saves and restores.

    ``guards`` are the subsets that the phase must preserve at every step, ``guards_at_end`` those that it must preserve
    at its end. ``"forget"`` in ``guards_at_end`` means that the forget loss should have risen by then.
    """

    name: ClassVar[str]
    keeps: ClassVar[tuple[str, ...]] = ()
    guards: tuple[str, ...] = RETAINED
    guards_at_end: tuple[str, ...] = (*RETAINED, "forget")
    steps: int
    bench: Workbench

    def prepare(self, bench: Workbench) -> None:
        """Create batches and optimisers, and set ``steps``. Must not depend on the values of the weights."""
        self.bench = bench

    def passes(self, bench: Workbench) -> Mapping[int, int]:
        """Return how many passes with gradient the phase will take, by their number of samples.

        Asked before ``prepare``, while an earlier phase runs, so that their code can be compiled by then. Optional, and
        passes that are few need not be named. It changes no result.
        """
        return {}

    def begin(self) -> None:  # noqa: B027
        """Measure what the phase needs to know about its initial weights."""

    @abstractmethod
    def step(self, number: int) -> Logged:
        """Do one step and return the values to log, as tensors that need not be ready yet."""

    def is_over(self) -> bool:
        """Return whether the phase ends before its last step. Ask only what a checkpoint keeps."""
        return False

    def finish(self) -> None:  # noqa: B027
        """Do what remains after the last step."""

    def release(self) -> None:
        """Free the state of the optimisers after the last step: Adam's takes as much memory as two gradients."""
        for name in self.keeps:
            if isinstance(kept := getattr(self, name), torch.optim.Optimizer):
                kept.state.clear()

    def state(self) -> State:
        """Return the phase's state as named, unsharded tensors; if weights are sharded, only in the first process."""
        return collected(
            {f"{name}.{key}": tensor for name in self.keeps for key, tensor in _to_tensors(getattr(self, name)).items()}
        )

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned. Call it after ``prepare``."""
        for name in self.keeps:
            mine = {key.removeprefix(f"{name}."): t for key, t in state.items() if key.startswith(f"{name}.")}
            setattr(self, name, _from_tensors(getattr(self, name, None), mine, self.bench))


def _to_tensors(value: Any) -> State:
    if isinstance(value, Tensor):
        return {"value": value.detach()}
    if isinstance(value, list):
        return {f"list.{index}": tensor.detach() for index, tensor in enumerate(value)}
    if isinstance(value, nn.Module):
        return {f"module.{name}": tensor for name, tensor in value.state_dict().items()}
    if isinstance(value, torch.optim.Optimizer):
        state = value.state_dict()
        tensors = {
            f"optimizer.{index}.{name}": entry
            for index, entries in state["state"].items()
            for name, entry in entries.items()
            if isinstance(entry, Tensor)
        }
        rest = {
            "state": {
                index: {name: entry for name, entry in entries.items() if not isinstance(entry, Tensor)}
                for index, entries in state["state"].items()
            },
            "param_groups": state["param_groups"],
        }
        return {**tensors, "optimizer_rest": _text_tensor(json.dumps(rest))}
    raise TypeError(f"A phase cannot keep a {type(value).__name__}. Keep tensors, optimisers or modules.")


def _from_tensors(current: Any, tensors: Mapping[str, Tensor], bench: Workbench) -> Any:
    if "value" in tensors:
        return tensors["value"].to(bench.device)
    if isinstance(current, torch.optim.Optimizer):
        rest = json.loads(_tensor_text(tensors["optimizer_rest"]))
        state = {int(index): entries for index, entries in rest["state"].items()}
        owners = [parameter for group in current.param_groups for parameter in group["params"]]
        for key, tensor in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                owner = owners[int(index)]
                state[int(index)][name] = _as_owned(tensor, owner) if tensor.shape == owner.shape else tensor
        current.load_state_dict({"state": state, "param_groups": rest["param_groups"]})
        return current
    if isinstance(current, nn.Module):
        load(current, {key.removeprefix("module."): tensor for key, tensor in tensors.items()})
        return current
    return all_cut_like([tensors[f"list.{index}"].to(bench.device) for index in range(len(tensors))], bench.parameters)


def _as_owned(tensor: Tensor, owner: Tensor) -> Tensor:
    """Shard a tensor like its weight, or give it the memory layout of its weight, which fused optimisers need."""
    if is_cut(owner):
        return cut_like(tensor, owner)
    return torch.empty_like(owner, dtype=tensor.dtype, device=tensor.device, requires_grad=False).copy_(tensor)


def _text_tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _tensor_text(tensor: Tensor) -> str:
    return bytes(tensor.cpu().tolist()).decode()
