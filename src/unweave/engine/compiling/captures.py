"""Passes recorded as CUDA graphs, which the device repeats with one launch each.

A small pass has hundreds of kernels, and the host needs longer to launch them than the device to run them. So a pass is
recorded for each shape of batch: the forward pass is one graph, the backward pass another. The kernels stay the same,
and so do the numbers. Optimisers and projections are a few launches and stay outside.

A pass is recorded where the rest of a phase repeats it often enough. Two plain passes come first, and the recorded one
must agree with them. What cannot be recorded runs as it is written: a model with hooks, whose Python would not run
again; a forward pass that waits for the device or draws random numbers on the host; a user's own loss. So does a pass
that keeps the device busy for much longer than the host. What was decided goes into checkpoints, so that a resumed run
repeats what the run before it repeated.
"""

from __future__ import annotations

import logging
import pickle
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from unweave.data import Data, tensors_of
from unweave.engine.compiling.recording import Recording, near
from unweave.runtime import free_memory, own_random_numbers, processes, seed_everything

Call: TypeAlias = Callable[[Data], Tensor]

log = logging.getLogger(__name__)

FEWEST = 48  # expected uses; with fewer, recording takes longer than it saves (0.2 s against some ms a use on an H200)
LAUNCHING = 0.5  # share of a plain pass's time that the host must need for launching it
MOST = 32  # passes that are recorded for one run
ROOM = 0.8  # share of the memory that may be taken once a pass is recorded
GENERATOR = ("clone_state", "graphsafe_set_state")  # what the random generators of torch must be able to do
SLOTS = 2  # passes of one kind that may wait for their backward pass at the same time


class Captures:
    """Runs passes of models on CUDA, recorded where that is possible.

    Args:
        device: Where the models and the batches are.
        parameters: The weights to differentiate.
    """

    def __init__(self, device: torch.device, parameters: Sequence[nn.Parameter]) -> None:
        self.device, self.parameters = device, list(parameters)
        self.allowed = can_record(device)
        self._step, self._left = 0, 0
        self._uses: Counter[str] = Counter()  # in this phase, by name
        self._chosen: dict[str, bool] = {}  # by name, whether it is recorded
        self._found: dict[Hashable, Recording] = {}

    def step(self, number: int, *, left: int) -> None:
        """Note that a step of a phase begins. Passes without a backward pass no longer wait for one.

        A phase gives back the memory of the passes that the phase before it recorded.
        """
        if number == 0:
            self._uses.clear()
            self._found.clear()
        self._step, self._left = number, left
        models = {recording.model for recording in self._found.values()}
        hooked = {model for model in models if _hooked(model)}  # since they were recorded
        self._found = {key: recording for key, recording in self._found.items() if recording.model not in hooked}
        for recording in self._found.values():
            recording.is_waiting = False

    def stop(self) -> None:
        """Give the memory of all recorded passes back, and record no more."""
        self.allowed = False
        self._found.clear()
        self._chosen = dict.fromkeys(self._chosen, False)

    def state(self) -> dict[str, Any]:
        """Return what was decided, for a checkpoint."""
        return {"recorded": dict(self._chosen), "uses": dict(self._uses)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Decide as the run did that wrote the checkpoint."""
        self._chosen, self._uses = dict(state["recorded"]), Counter(state["uses"])

    def run(self, call: Call, function: Any, model: nn.Module, data: Data, kind: Hashable) -> Tensor:
        """Return ``call(data)``, which runs this function of the model. ``kind`` names the code and the shapes."""
        if not self.allowed or not self._left or not _is_ours(function):
            return call(data)
        if model.training and processes.count() > 1:  # statistics may be shared among processes
            return call(data)
        name = f"{getattr(function, '__qualname__', function)} {kind}"
        self._uses[name] += 1
        if not self._pays(name):
            return call(data)
        owner = getattr(function, "__self__", None)
        for slot in range(SLOTS):
            key = (getattr(function, "__func__", function), id(owner), id(model), kind, slot)
            recording = self._found.get(key)
            if recording is None and len(self._found) >= MOST:
                break
            if recording is None or not recording.stands():
                recording = self._recorded(call, function, model, data, sure=name in self._chosen)
                self._chosen[name] = recording is not None
                if recording is None:
                    self._give_back()  # what the tries took on their stream is of no use on another
                    break
                self._found[key] = recording
            if not recording.is_waiting:
                return recording.run(data)
        return call(data)

    def _pays(self, name: str) -> bool:
        """Tell whether a pass that is used as often as so far is worth recording."""
        if name in self._chosen:
            return self._chosen[name]
        return self._uses[name] / (self._step + 1) * self._left >= FEWEST

    def _recorded(self, call: Call, function: Any, model: nn.Module, data: Data, *, sure: bool) -> Recording | None:
        """Record a pass and compare it with plain passes; None if it cannot be, or, unless ``sure``, need not be."""
        if hooked := _hooked(model):
            log.info("Passes of %s are not recorded: %s has hooks.", type(model).__name__, hooked)
            return None
        if any(tensor.device != self.device for tensor in tensors_of(data)):
            log.info("Passes of %s are not recorded: the batch is not on %s.", type(model).__name__, self.device)
            return None
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            with own_random_numbers(self.device):
                return self._tried(Recording(call, function, model, data, self.parameters, self.device), sure)
        except torch.OutOfMemoryError:
            self.stop()
            self._forget_failed_recording()
        except Exception as error:  # what a graph cannot hold; a plain pass shows its own errors
            log.info("Passes of %s are not recorded: %s", type(model).__name__, str(error).split("\n", 1)[0])
            self._forget_failed_recording()
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    if not torch.equal(buffer, before):  # others may be in use by a pass that waits
                        buffer.copy_(before)
        return None

    def _tried(self, recording: Recording, sure: bool) -> Recording:
        """Record after two plain passes; raise if the three do not agree or launching is not what takes the time."""
        plain = []
        for _ in range(2):
            seed_everything(0, self.device)
            drawn = _host_generators()
            plain.append(recording.plain())
            if _host_generators() != drawn:
                raise RuntimeError("a pass draws random numbers on the host")
        if not near(*plain):
            raise RuntimeError("two passes of the same batch differ")
        if not sure and recording.launching < LAUNCHING:
            raise RuntimeError(f"launching takes {recording.launching:.0%} of a pass, so the device is the limit")
        if not self._has_room():
            raise RuntimeError("memory is short")
        recording.record()
        seed_everything(0, self.device)
        if not near(plain[1], recording.repeated()):
            raise RuntimeError("the recorded pass differs from a plain one")
        return recording

    def _has_room(self) -> bool:
        """Tell whether a pass can keep its memory: no more than all passes have needed so far.

        What torch still holds after giving back is in use, or belongs to passes that were recorded before.
        """
        if self.device.type != "cuda":
            return True
        self._give_back()
        held = torch.cuda.memory_reserved(self.device)
        needed = held + torch.cuda.max_memory_allocated(self.device)
        return needed <= ROOM * (free_memory(self.device) + held)

    def _give_back(self) -> None:
        """Give the memory that torch holds and does not use back to the device."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _forget_failed_recording(self) -> None:
        """Make the device's generator usable again: after a failed recording torch believes that it still records.

        Recorded passes read the generator that was there before, so they are recorded again when they are needed.
        """
        if self.device.type != "cuda":
            return
        generator = torch.cuda.default_generators[self.device.index or 0]
        generator.graphsafe_set_state(generator.clone_state())
        self._found.clear()


def can_record(device: torch.device) -> bool:
    """Tell whether a device can record passes, and this torch go on after one that fails."""
    return device.type == "cuda" and all(hasattr(torch.Generator, name) for name in GENERATOR)


def _is_ours(function: Any) -> bool:
    """Tell whether a function is one of unweave's, which compute the same from the same; a user's may keep state."""
    if isinstance(function, partial):
        return _is_ours(function.func)
    owner = getattr(function, "__self__", None)
    homes = [getattr(function, "__module__", None), type(owner).__module__ if owner is not None else "unweave."]
    named = "<" not in getattr(function, "__qualname__", "<")
    # A task with a user's own loss is not independent.
    return named and all((home or "").startswith("unweave.") for home in homes) and getattr(owner, "independent", True)


def _hooked(model: nn.Module) -> str | None:
    """Return the name of a module with hooks, which would not run when a pass is repeated."""
    for name, module in model.named_modules():
        own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(own):
            return name or "the model"
    return next((name for name, parameter in model.named_parameters() if parameter._backward_hooks), None)


def _host_generators() -> bytes:
    """Return the states of the host's random generators, to compare them."""
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state().numpy()  # noqa: NPY002
    return pickle.dumps(states)
