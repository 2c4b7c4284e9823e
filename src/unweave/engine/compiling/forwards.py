"""Compiled forward passes, used where compiling takes less time than it saves.

The model itself does not change: the compiled callable stands beside it, so weights keep their names. Code is compiled
for one shape of batch at a time. A slightly smaller batch is padded to that shape; other rare shapes run uncompiled.
Normalisation with frozen statistics is folded into the convolution before it (`unweave.engine.compiling.folding`).
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from unweave.data import Data, map_tensors, tensors_of
from unweave.engine.compiling.captures import Captures
from unweave.engine.compiling.folding import compile_folded
from unweave.engine.compiling.torch_internals import allow_variants, cache_folder
from unweave.errors import RunWarning, UsageError
from unweave.storage import Lock

Compile = Literal["auto", "on", "off"]

# Measured on one H200, ResNet-18 at 224×224, forward and backward of 512 images: 46.5 ms uncompiled, 21.3 ms compiled.
SAVED = 0.35  # share of a pass's time that compiling saves, a cautious estimate
# Seconds of compiling per layer. There, the 62 layers of ResNet-18 took 17 to 34 s, and 3 s from torch's cache on disk.
WARM_UP_SECONDS = {"never compiled": 0.5, "compiled by another process": 0.06}
SLACK = 1.15  # a batch is padded to a compiled shape that is at most this many times larger
BACKWARD = 3  # a forward and a backward pass take this many times as long as a forward pass
BACKEND: Any = compile_folded  # the backend of torch.compile
MOST = 32  # shapes that are compiled for one model; all others run uncompiled


class Variant(NamedTuple):
    """What a piece of code is compiled for: a kind of model, a mode, the shapes of a batch."""

    kind: str
    training: bool
    grad: bool
    autocast: bool
    shapes: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def samples(self) -> int:
        """The number of samples in the batch."""
        return self.shapes[0][0][0]

    def of(self, samples: int) -> Variant:
        """Return this variant with another number of samples."""
        return self._replace(shapes=tuple(((samples, *shape[1:]), dtype) for shape, dtype in self.shapes))

    @classmethod
    def parse(cls, entry: Sequence[Any]) -> Variant:
        """Return the variant whose fields went through JSON."""
        kind, training, grad, autocast, shapes = entry
        return cls(kind, training, grad, autocast, tuple((tuple(shape), dtype) for shape, dtype in shapes))


_WARM: set[Variant] = set()  # what this process has compiled, for the next model of the same kind


class Forwards:
    """Runs a function of a model and a batch, with the model compiled or uncompiled.

    ``on`` compiles every shape of batch that occurs twice, ``off`` compiles nothing. ``auto`` decides for each shape,
    from the time of a step and the number of steps left. On the CPU it compiles only what this process has compiled
    before. If compiling fails, everything runs uncompiled, after one warning.
    """

    def __init__(self, mode: Compile, device: torch.device, captures: Captures | None = None) -> None:
        self.mode, self.device, self.captures = mode, device, captures
        self._compiled: dict[nn.Module, Any] = {}
        self._kinds: WeakKeyDictionary[nn.Module, tuple[str, int]] = WeakKeyDictionary()  # weak: models come and go
        self._calls: Counter[Variant] = Counter()
        self._known: set[Variant] = set()
        self._replayed: set[Variant] = set()  # what the run before a resume had compiled
        self._claims: dict[Variant, Lock] = {}  # what this process is compiling; other processes wait for it
        self._failed = False
        self._steps = self._left = 0
        self._work = 0  # samples of the timed step; one with gradient counts BACKWARD times
        self._since = 0.0
        self._seconds: float | None = None  # per sample of the timed step

    def step(self, number: int, *, of: int, first: int = 0, may_record: bool = True) -> None:
        """Note that a step begins, in a phase ``of`` so many; time the second after the ``first`` of this process."""
        left = of - number
        if self.captures:
            self.captures.step(number, left=left if may_record else 0)
        if self.mode != "auto" or self.device.type != "cuda":
            return
        if number == first:
            self._calls.clear()
            self._seconds = None
        elif number <= first + 2:
            torch.cuda.synchronize(self.device)  # twice in a phase
            now = time.perf_counter()
            if number == first + 2 and self._work:
                self._seconds = (now - self._since) / self._work
            self._since, self._work = now, 0
        self._steps, self._left = number - first, left

    def state(self) -> dict[str, Any]:
        """Return what was compiled and recorded, for a checkpoint: a resumed run begins with it."""
        calls = [[*variant, count] for variant, count in self._calls.items()] if self.mode == "on" else []
        recorded = self.captures.state() if self.captures else {}
        return {"compiled": [list(variant) for variant in sorted(self._known)], "calls": calls, **recorded}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Compile and record at once what the run that wrote the checkpoint had compiled and recorded."""
        self._replayed = {Variant.parse(entry) for entry in state["compiled"]}
        self._calls = Counter({Variant.parse(entry[:-1]): int(entry[-1]) for entry in state["calls"]})
        if self.captures:
            self.captures.load_state(state)

    def run(self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data) -> Tensor:
        """Call the function with the model and the batch, and return its result."""
        if self.mode == "off" or self._finds_nothing():
            return function(model, data)
        kind, layers = self._kind(model)
        tensors = tensors_of(data)
        shapes = tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors)
        grad, cast = torch.is_grad_enabled(), torch.is_autocast_enabled(self.device.type)
        variant = Variant(kind, model.training, grad, cast, shapes)
        samples = len(tensors[0])
        self._calls[variant] += 1
        self._work += samples * (BACKWARD if grad else 1)
        if self._failed:
            return self._call(function, model, model, data, variant)
        if (full := self._to_fill(variant, samples)) is not None:
            return self._run_compiled(function, model, filled(data, full), variant.of(full))[:samples]
        if variant in self._known or self._pays(variant, samples, layers):
            return self._run_compiled(function, model, data, variant)
        return self._call(function, model, model, data, variant)

    def _call(
        self, function: Callable[[nn.Module, Data], Tensor], callee: Any, model: nn.Module, data: Data, variant: Variant
    ) -> Tensor:
        """Run the function with the model, or its compiled code; recorded where that is possible."""
        if self.captures is None:
            return function(callee, data)
        return self.captures.run(partial(function, callee), function, model, data, (variant, callee is model))

    def _finds_nothing(self) -> bool:
        """Tell whether ``auto`` runs uncompiled anyway: on the CPU, while this process has compiled nothing."""
        return self.mode == "auto" and self.device.type == "cpu" and not _WARM

    def _to_fill(self, variant: Variant, samples: int) -> int | None:
        """Return the compiled size that this batch can be padded to, or None."""
        if variant.training or variant in self._known:  # in training mode the copies would change the results
            return None
        compiled = self._known | self._replayed
        if variant in compiled:
            return None
        sizes = sorted({known.samples for known in compiled if known.of(samples) == variant})
        return next((size for size in sizes if samples < size <= SLACK * samples), None)

    def _pays(self, variant: Variant, samples: int, layers: int) -> bool:
        """Tell whether compiling this variant saves more time in the steps left than it takes."""
        if variant in self._replayed or len(self._known) >= MOST:
            return variant in self._replayed
        if self.mode == "on":
            return self._calls[variant] > 1  # not for a shape that occurs once
        if variant in _WARM:
            return True
        if self._seconds is None:
            return False
        expected = self._calls[variant] / self._steps * self._left
        saved = expected * samples * (BACKWARD if variant.grad else 1) * self._seconds * SAVED
        mark = self._mark(variant)
        if mark is not None and mark.exists():
            return saved > layers * WARM_UP_SECONDS["compiled by another process"]
        return saved > layers * WARM_UP_SECONDS["never compiled"] and self._claim(variant, mark)

    def _claim(self, variant: Variant, mark: Path | None) -> bool:
        """Claim the right to compile this variant; return False while another process compiles it.

        The workers of a study start together with the same model. One of them compiles; the others run uncompiled until
        it is done, and then find its code in torch's cache.
        """
        if mark is None or variant in self._claims:
            return True
        try:
            with suppress(OSError):  # without a lock, each process compiles for itself
                mark.parent.mkdir(parents=True, exist_ok=True)
                self._claims[variant] = Lock(mark.with_suffix(".lock"))
        except UsageError:
            return False
        return True

    def _mark(self, variant: Variant) -> Path | None:
        """Return the file, beside torch's cache, whose presence says that this machine has compiled the variant."""
        if (folder := cache_folder()) is None:
            return None
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        text = f"{torch.__version__} {name} {variant}"
        return folder / "unweave" / hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _run_compiled(
        self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data, variant: Variant
    ) -> Tensor:
        """Run the function with the compiled model. If compiling fails, warn and run it uncompiled from now on."""
        if variant in self._known:
            return self._call(function, self._compile(model), model, data, variant)
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
            if (claim := self._claims.pop(variant, None)) is not None:
                claim.release()
        return found

    def _compile(self, model: nn.Module) -> Any:
        """Return the compiled callable of this model. Torch compiles it when the first batch arrives."""
        if model not in self._compiled:
            self._compiled[model] = torch.compile(model, dynamic=False, backend=BACKEND)
        return self._compiled[model]

    def _note(self, variant: Variant) -> None:
        """Note for this and for other processes that the variant is compiled."""
        self._known.add(variant)
        _WARM.add(variant)
        if (mark := self._mark(variant)) is not None:
            with suppress(OSError):  # without the file, later processes expect to compile for longer
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()

    def _kind(self, model: nn.Module) -> tuple[str, int]:
        """Return a fingerprint of the model's code (equal for copies) and its number of layers."""
        if model not in self._kinds:
            weights = tuple(
                (name, tuple(p.shape), p.stride(), p.dtype, p.requires_grad) for name, p in model.named_parameters()
            )
            layers = sum(1 for module in model.modules() if next(module.children(), None) is None)
            text = f"{type(model)} {model} {weights} {self.device}"
            self._kinds[model] = (hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), layers)
        return self._kinds[model]


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
