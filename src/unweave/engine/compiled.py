"""Compiled forward passes, where compiling takes less time than it saves.

The model itself stays as it is: a compiled callable is kept beside it, so that names of weights never change. Code is
compiled for one shape of batch at a time; shapes that are rare, such as a short last batch, run as they are.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from unweave.data import Data
from unweave.errors import RunWarning
from unweave.trees import tensors_of

Compile = Literal["auto", "on", "off"]
T = TypeVar("T")

# Measured on one H200, ResNet-18 at 224×224, forward and backward of 512 images: 44.8 ms as it is, 25.4 ms compiled.
SAVED = 0.35  # share of the time of a pass that compiling saves, on the safe side
WARM_UP_SECONDS = 0.5  # of compiling, per layer: 20 to 34 s for the 62 of ResNet-18 there
BACKWARD = 3  # a forward and backward pass takes so many times a forward pass
MOST = 32  # compiled shapes of one model, beyond which everything else runs as it is

_WARM: set[Hashable] = set()  # what this process has compiled: a copy of a model finds the code ready


class Forwards:
    """Runs a function of a model and a batch with the model compiled, or as it is.

    ``auto`` decides for each shape of batch from the time of a whole step and the number of steps left; on the CPU it
    never compiles, except what this process has compiled already.
    """

    def __init__(self, mode: Compile, device: torch.device) -> None:
        self.mode, self.device = mode, device
        self._compiled: dict[nn.Module, nn.Module] = {}
        self._kinds: dict[nn.Module, tuple[Hashable, int]] = {}
        self._calls: Counter[Hashable] = Counter()
        self._known: set[Hashable] = set()
        self._failed = False
        self._steps = self._left = 0
        self._work = 0  # samples of the timed step, those with gradient counted as often as they take longer
        self._since = 0.0
        self._seconds: float | None = None  # per sample of the timed step

    def step(self, number: int, *, left: int) -> None:
        """Note that step ``number`` of a phase begins, and how many are left. The second step is timed."""
        if self.mode != "auto" or self.device.type != "cuda":
            return
        if number == 0:
            self._calls.clear()
            self._seconds = None
        elif number <= 2:
            torch.cuda.synchronize(self.device)  # twice in a phase
            now = time.perf_counter()
            if number == 2 and self._work:
                self._seconds = (now - self._since) / self._work
            self._since, self._work = now, 0
        self._steps, self._left = number, left

    def run(self, function: Callable[[nn.Module, Data], T], model: nn.Module, data: Data) -> T:
        """Return what the function gives for the model and the batch."""
        if self.mode == "off" or self._failed:
            return function(model, data)
        kind, layers = self._kind(model)
        tensors = tensors_of(data)
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        variant = (kind, model.training, torch.is_grad_enabled(), torch.is_autocast_enabled(self.device.type), shapes)
        samples = len(tensors[0]) * (BACKWARD if torch.is_grad_enabled() else 1)
        worth = variant in self._known or self._pays(variant, samples, layers)
        self._calls[variant] += 1
        self._work += samples
        return self._run_compiled(function, model, data, variant) if worth else function(model, data)

    def _pays(self, variant: Hashable, samples: int, layers: int) -> bool:
        if len(self._known) >= MOST:
            return False
        if self.mode == "on":
            return self._calls[variant] > 0  # not for a shape that occurs once
        if variant in _WARM:
            return True
        if self._seconds is None:
            return False
        expected = self._calls[variant] / self._steps * self._left
        return expected * samples * self._seconds * SAVED > layers * WARM_UP_SECONDS

    def _run_compiled(
        self, function: Callable[[nn.Module, Data], T], model: nn.Module, data: Data, variant: Hashable
    ) -> T:
        if model not in self._compiled:
            self._compiled[model] = torch.compile(model, dynamic=False)  # type: ignore[assignment]
        compiled = self._compiled[model]
        if variant in self._known:
            return function(compiled, data)
        try:
            with _many_shapes():
                found = function(compiled, data)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler can run into; a fault of the model itself shows again below
            self._failed = True
            found = function(model, data)
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warnings.warn(f"The model could not be compiled and runs as it is: {reason}", RunWarning, stacklevel=2)
            return found
        self._known.add(variant)
        _WARM.add(variant)
        return found

    def _kind(self, model: nn.Module) -> tuple[Hashable, int]:
        """Return what distinguishes the model's code from another's, and how many layers it has."""
        if model not in self._kinds:
            weights = tuple(
                (name, tuple(p.shape), p.stride(), p.dtype, p.requires_grad) for name, p in model.named_parameters()
            )
            layers = sum(1 for module in model.modules() if next(module.children(), None) is None)
            self._kinds[model] = (hash((type(model), str(model), weights, self.device)), layers)
        return self._kinds[model]


def _many_shapes() -> Any:
    """Allow more than the compiler's usual eight variants of a model; how many there are is our own care."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    return config.patch({name: 4 * MOST})
