"""Compiled forward passes, used where compiling takes less time than it saves.

The model itself does not change: the compiled callable stands beside it, so weights keep their names. Code is compiled
for one shape of batch at a time. A slightly smaller batch is padded to that shape; other rare shapes run uncompiled.
Normalisation with frozen statistics is folded into the convolution before it (`unweave.engine.compiling.folding`).
Where another process can compile (`unweave.engine.compiling.background`), steps run uncompiled until it has.
"""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unweave.data import Data, map_tensors, tensors_of
from unweave.engine.compiling.background import Background
from unweave.engine.compiling.captures import Captures
from unweave.engine.compiling.folding import compile_folded, fold_only
from unweave.engine.compiling.portable import load_named_code
from unweave.engine.compiling.torch_internals import allow_variants
from unweave.engine.compiling.variants import Marks, Variant
from unweave.errors import RunWarning

Compile = Literal["auto", "on", "off"]
log = logging.getLogger(__name__)

# Measured on one H200, ResNet-18 at 224×224, forward and backward of 512 images: 46.5 ms uncompiled, 21.3 ms compiled.
SAVED = 0.35  # share of a pass's time that compiling saves, a cautious estimate
# Seconds of compiling per layer. There, the 62 layers of ResNet-18 took 11 to 16 s once torch's compiler was imported,
# and 2 to 3 s from torch's cache on disk. The factors for other machines are cautious.
WARM_UP_SECONDS = {
    "never compiled": 0.5,
    "compiled by another process": 0.06,
    "in the background": 0.4,
    "only folded": 0.02,  # 1.2 s there
}
SAVED_BY_FOLDING = 0.25  # share of a pass's time that folding alone saves: there, 34.5 instead of 46 ms
SLACK = 1.15  # a batch is padded to a compiled shape that is at most this many times larger
BACKWARD = 3  # a forward and a backward pass take this many times as long as a forward pass
BACKEND: Any = compile_folded  # the backend of torch.compile
MOST = 32  # shapes that are compiled for one model; all others run uncompiled


_WARM: set[Variant] = set()  # what this process has compiled, for the next model of the same kind


class Forwards:
    """Runs a function of a model and a batch, with the model compiled or uncompiled.

    ``on`` compiles every shape of batch that occurs twice, ``off`` compiles nothing. ``auto`` decides for each shape,
    from the time of a step and the number of steps left, and always between two steps. On the CPU it compiles only what
    this process has compiled before. If compiling fails, everything runs uncompiled, after one warning.
    """

    def __init__(
        self,
        mode: Compile,
        device: torch.device,
        captures: Captures | None = None,
        *,
        most_memory: int | None = None,
    ) -> None:
        self.mode, self.device, self.captures = mode, device, captures
        self.marks = Marks(device)
        self.background = Background(self.marks, most_memory)
        self.has_switched = False  # whether `step` has chosen compiled code since this was set to False
        self._compiled: dict[nn.Module, Any] = {}
        self._only_folded: dict[nn.Module, Any] = {}
        self._kinds: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()  # weak: models come and go
        self._layers: dict[str, int] = {}  # of each kind
        self._calls: Counter[Variant] = Counter()
        self._known: set[Variant] = set()
        self._chosen: set[Variant] = set()  # to compile when they occur: chosen here, or before a resume
        self._folded: set[Variant] = set()  # to run folded, but not compiled, until they are compiled
        self._foldable: set[str] = set()  # kinds
        self._orders: dict[Variant, list[Variant]] = {}  # for the background, by a variant whose batch shows the form
        self._failed = False
        self._steps = self._left = 0
        self._work = 0  # samples of the timed step; one with gradient counts BACKWARD times
        self._since = 0.0
        self._seconds: float | None = None  # per sample of the timed step
        self._step_seconds = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let another process compile inside this block, if it is worth it, and end it afterwards."""
        if self.mode == "on" or self.may_choose:
            load_named_code(self.marks)
        if self.mode == "auto" and self.may_choose:
            self.background.open()
        try:
            yield
        finally:
            self.background.stop()
            self.marks.release_all()

    def expect(self, passes: Mapping[int, int]) -> None:
        """Prepare for the passes with gradient of later phases, counted by their number of samples."""
        self.background.expect(sum(samples * count for samples, count in passes.items()))

    def step(
        self, number: int, *, of: int, first: int = 0, may_record: bool = True, ahead: Mapping[int, int] | None = None
    ) -> None:
        """Note that a step begins, in a phase ``of`` so many; choose the code that it uses.

        The second step after the ``first`` of this process is timed. ``ahead`` says how many passes with gradient later
        phases will take, by their number of samples.
        """
        left = of - number
        if self.captures:
            self.captures.step(number, left=left if may_record else 0)
        if not may_choose(self.mode, self.device):
            return
        if number == first:
            self._calls.clear()
            self._seconds = None
        elif number <= first + 2:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # twice in a phase
            now = time.perf_counter()
            if number == first + 2 and self._work:
                self._step_seconds = now - self._since
                self._seconds = self._step_seconds / self._work
            self._since, self._work = now, 0
        self._steps, self._left = number - first, left
        if self._seconds is not None and not self._failed:
            self._choose(ahead or {})

    @property
    def may_choose(self) -> bool:
        """Whether ``auto`` compiles on this device what this process has not compiled before."""
        return may_choose("auto", self.device)

    @property
    def known(self) -> list[Variant]:
        """What this run has compiled."""
        return sorted(self._known)

    @property
    def folded(self) -> list[Variant]:
        """What passes run folded until it is compiled."""
        return sorted(self._folded.difference(self.chosen))

    @property
    def chosen(self) -> list[Variant]:
        """What passes run compiled, whether they have occurred since or not."""
        return sorted(self._known | self._chosen)

    def state(self) -> dict[str, Any]:
        """Return what was compiled and recorded, for a checkpoint: a resumed run begins with it."""
        calls = [[*variant, count] for variant, count in self._calls.items()] if self.mode == "on" else []
        recorded = self.captures.state() if self.captures else {}
        return {
            "compiled": [list(variant) for variant in self.chosen],
            "folded": [list(variant) for variant in self.folded],
            "calls": calls,
            **recorded,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Compile and record at once what the run that wrote the checkpoint had compiled and recorded."""
        self._folded = {Variant.parse(entry) for entry in state.get("folded", [])}
        self._chosen = {Variant.parse(entry) for entry in state["compiled"]}
        self._calls = Counter({Variant.parse(entry[:-1]): int(entry[-1]) for entry in state["calls"]})
        if self.captures:
            self.captures.load_state(state)

    def run(self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data) -> Tensor:
        """Call the function with the model and the batch, and return its result."""
        if self.mode == "off" or self._finds_nothing():
            return function(model, data)
        tensors = tensors_of(data)
        shapes = tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors)
        grad, cast = torch.is_grad_enabled(), torch.is_autocast_enabled(self.device.type)
        variant = Variant(self._kind(model), model.training, grad, cast, shapes)
        samples = len(tensors[0])
        self._calls[variant] += 1
        self._work += samples * (BACKWARD if grad else 1)
        if self._failed:
            return self._call(function, model, model, data, (variant, True))
        if (full := self._to_fill(variant, samples)) is not None:
            return self._run_compiled(function, model, filled(data, full), variant.of(full))[:samples]
        if self._is_compiled(variant):
            return self._run_compiled(function, model, data, variant)
        if wanted := self._orders.pop(variant, None):
            self.background.order(function, model, data, wanted, BACKEND)
        if variant in self._folded:
            return self._run_folded(function, model, data, variant)
        return self._call(function, model, model, data, (variant, True))

    def _call(
        self, function: Callable[[nn.Module, Data], Tensor], callee: Any, model: nn.Module, data: Data, kind: Hashable
    ) -> Tensor:
        """Run the function with the model, or code made of it; recorded where that is possible."""
        if self.captures is None:
            return function(callee, data)
        return self.captures.run(partial(function, callee), function, model, data, kind)

    def _finds_nothing(self) -> bool:
        """Tell whether ``auto`` runs uncompiled anyway: on the CPU, while this process has compiled nothing."""
        return self.mode == "auto" and not may_choose(self.mode, self.device) and not _WARM

    def _to_fill(self, variant: Variant, samples: int) -> int | None:
        """Return the compiled size that this batch can be padded to, or None."""
        if variant.training or variant in self._known:  # in training mode the copies would change the results
            return None
        used = self._known | self._chosen
        if variant in used:
            return None
        sizes = sorted({known.samples for known in used if known.of(samples) == variant})
        return next((size for size in sizes if samples < size <= SLACK * samples), None)

    def _is_compiled(self, variant: Variant) -> bool:
        """Tell whether this pass runs compiled code, which is compiled now if that has not happened yet."""
        if variant in self._known or variant in self._chosen:
            return True
        if len(self._known) >= MOST:
            return False
        if self.mode == "on":
            return self._calls[variant] > 1  # not for a shape that occurs once
        return variant in _WARM

    def _choose(self, ahead: Mapping[int, int]) -> None:
        """Choose the shapes to run compiled from this step on, and those to compile in the background."""
        self.background.look()
        room = MOST - len(self._known | self._chosen)
        for variant in [seen for seen in self._calls if seen not in self._known | self._chosen][:room]:
            if variant in self.background.ordered:
                self._fold_meanwhile(variant)
                continue
            expected = self._calls[variant] / self._steps * self._left
            if self._pays(variant, self._uncompiled(variant, expected)):
                self._chosen.add(variant)
                self.has_switched = True
        if self.background.allowed and not self.background.ordered:
            self._orders = self._worth_ordering(ahead)

    def _fold_meanwhile(self, variant: Variant) -> None:
        """Choose to run a variant folded until another process has compiled it, if that takes much longer."""
        if not self.background.is_ready() or variant.training or variant.kind not in self._foldable:
            return
        layers = self._layers[variant.kind]
        waiting = layers * WARM_UP_SECONDS["in the background"] - (time.perf_counter() - self.background.since)
        if variant not in self._folded and waiting * SAVED_BY_FOLDING > layers * WARM_UP_SECONDS["only folded"]:
            self._folded.add(variant)
            self.has_switched = True

    def _run_folded(
        self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data, variant: Variant
    ) -> Tensor:
        """Run the function with the folded model; uncompiled from now on if that cannot be traced."""
        if model not in self._only_folded:
            self._only_folded[model] = compiled(model, fold_only)
        try:
            with allow_variants(4 * MOST):
                return self._call(function, self._only_folded[model], model, data, (variant, "folded"))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # as for compiled code
            log.info("The model cannot be folded: %s", _cause(error))
            self._folded, self._foldable = set(), set()
            return function(model, data)

    def _pays(self, variant: Variant, seconds: float) -> bool:
        """Tell whether to compile a variant now whose passes would take this long."""
        saved, layers = seconds * SAVED, self._layers[variant.kind]
        if saved <= layers * WARM_UP_SECONDS["compiled by another process"]:
            return False
        if self.marks.has(variant):
            return not self.background.allowed or self.background.is_ready()
        if self.background.allowed or saved <= layers * WARM_UP_SECONDS["never compiled"]:
            return False
        return self.marks.claim(variant)

    def _worth_ordering(self, ahead: Mapping[int, int]) -> dict[Variant, list[Variant]]:
        """Return what would be ready early enough in the background, each beside a variant of the same form."""
        found: dict[Variant, list[Variant]] = {}
        for seen, calls in self._calls.items():
            until = self._layers[seen.kind] * WARM_UP_SECONDS["in the background"]
            passes = {seen: self._uncompiled(seen, calls / self._steps * self._left) - until}
            later = max(0.0, until - self._left * self._step_seconds)
            for samples, count in ahead.items() if seen.grad else ():
                variant = seen.of(samples)
                passes[variant] = max(passes.get(variant, 0.0), self._uncompiled(variant, count) - later)
            least = self._layers[seen.kind] * WARM_UP_SECONDS["compiled by another process"] / SAVED
            worth = [v for v in sorted(passes, key=lambda v: -passes[v]) if passes[v] > least]
            ordered = {variant for others in found.values() for variant in others}
            new = [v for v in worth if v not in self._known | self._chosen | ordered and not self.marks.has(v)]
            if new:
                found[seen] = new
        return found

    def _uncompiled(self, variant: Variant, passes: float) -> float:
        """Return the seconds that so many passes take uncompiled."""
        return passes * variant.samples * (BACKWARD if variant.grad else 1) * (self._seconds or 0.0)

    def _run_compiled(
        self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data, variant: Variant
    ) -> Tensor:
        """Run the function with the compiled model. If compiling fails, warn and run it uncompiled from now on."""
        if variant in self._known:
            return self._call(function, self._compile(model), model, data, (variant, False))
        try:
            with allow_variants(4 * MOST):
                found = function(self._compile(model), data)
            self._note(variant)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler can raise anything; an error of the model itself is raised again below
            self._failed = True
            found = function(model, data)
            warnings.warn(
                f"The model could not be compiled and runs uncompiled: {_cause(error)}. Set compile='off' to skip it.",
                RunWarning,
                stacklevel=2,
            )
        finally:
            self.marks.release(variant)
        return found

    def _compile(self, model: nn.Module) -> Any:
        """Return the compiled callable of this model. Torch compiles it when the first batch arrives."""
        if model not in self._compiled:
            self._compiled[model] = compiled(model, BACKEND)
        return self._compiled[model]

    def _note(self, variant: Variant) -> None:
        """Note for this and for other processes that the variant is compiled."""
        self._known.add(variant)
        _WARM.add(variant)
        self.marks.put(variant)

    def _kind(self, model: nn.Module) -> str:
        """Return a fingerprint of the model's code, equal for copies; count its layers."""
        if model not in self._kinds:
            weights = tuple(
                (name, tuple(p.shape), p.stride(), p.dtype, p.requires_grad) for name, p in model.named_parameters()
            )
            text = f"{type(model)} {model} {weights} {self.device}"
            self._kinds[model] = kind = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            if any(isinstance(module, _BatchNorm) for module in model.modules()):
                self._foldable.add(kind)
            self._layers[kind] = sum(1 for module in model.modules() if next(module.children(), None) is None)
        return self._kinds[model]


def may_choose(mode: Compile, device: torch.device) -> bool:
    """Tell whether shapes are compiled where it pays: with ``auto``, on CUDA."""
    return mode == "auto" and device.type == "cuda"


def compiled(model: nn.Module, backend: Any) -> Any:
    """Return the compiled callable of a model. Torch compiles it when the first batch arrives."""
    return torch.compile(model, dynamic=False, backend=backend)


def filled(data: Data, samples: int) -> Data:
    """Pad a batch to a number of samples with copies of its first sample.

    >>> filled((torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])), 4)[1]
    tensor([0, 1, 0, 0])
    """

    def fill(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor[:1].expand(samples - len(tensor), *tensor.shape[1:])])

    found: Data = map_tensors(fill, data)
    return found


def _cause(error: BaseException) -> str:
    """Return the first line of the error that began a chain of errors. Torch wraps what a backend raises."""
    while (inner := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = inner
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
