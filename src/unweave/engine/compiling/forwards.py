"""Compiled forward passes, where compiling takes less time than it saves.

The model itself stays as it is: a compiled callable is kept beside it, so that names of weights never change. Code is
compiled for one shape of batch at a time. A batch that is little smaller is filled up to that shape; other shapes that
are rare run as they are. Normalisation with frozen statistics is folded into the convolution before it
(`unweave.engine.compiling.folding`).
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from unweave.data import Data, map_tensors, tensors_of
from unweave.engine.compiling.folding import compile_folded
from unweave.engine.compiling.torch_internals import allow_variants, cache_folder
from unweave.errors import RunWarning, UsageError
from unweave.storage import Lock

Compile = Literal["auto", "on", "off"]

# Measured on one H200, ResNet-18 at 224×224, forward and backward of 512 images: 46.5 ms as it is, 21.3 ms compiled.
SAVED = 0.35  # share of the time of a pass that compiling saves, on the safe side
# Of compiling, per layer: there 17 to 34 s for the 62 of ResNet-18, but 3 s for what torch's cache on disk had ready.
WARM_UP_SECONDS = {"never compiled": 0.5, "compiled by another process": 0.06}
SLACK = 1.15  # a batch is filled up to a compiled shape that is so many times larger at most
BACKWARD = 3  # a forward and backward pass takes so many times a forward pass
BACKEND: Any = compile_folded  # of torch.compile
MOST = 32  # compiled shapes of one model, beyond which everything else runs as it is


class Variant(NamedTuple):
    """What code is compiled for."""

    kind: str
    training: bool
    grad: bool
    autocast: bool
    shapes: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return self.shapes[0][0][0]

    def of(self, samples: int) -> Variant:
        """Return the same for another number of samples."""
        return self._replace(shapes=tuple(((samples, *shape[1:]), dtype) for shape, dtype in self.shapes))


_WARM: set[Variant] = set()  # what this process has compiled: a copy of a model finds the code ready


class Forwards:
    """Runs a function of a model and a batch with the model compiled, or as it is.

    ``auto`` decides for each shape of batch from the time of a whole step and the number of steps left; on the CPU it
    never compiles, except what this process has compiled already.
    """

    def __init__(self, mode: Compile, device: torch.device) -> None:
        self.mode, self.device = mode, device
        self._compiled: dict[nn.Module, Any] = {}
        self._kinds: WeakKeyDictionary[nn.Module, tuple[str, int]] = WeakKeyDictionary()  # models come and go
        self._calls: Counter[Variant] = Counter()
        self._known: set[Variant] = set()
        self._claims: dict[Variant, Lock] = {}  # what this process is about to compile, for others to wait for
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

    def run(self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data) -> Tensor:
        """Return what the function gives for the model and the batch."""
        if self.mode == "off" or self._failed:
            return function(model, data)
        kind, layers = self._kind(model)
        tensors = tensors_of(data)
        shapes = tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors)
        grad, cast = torch.is_grad_enabled(), torch.is_autocast_enabled(self.device.type)
        variant = Variant(kind, model.training, grad, cast, shapes)
        samples = len(tensors[0])
        self._calls[variant] += 1
        self._work += samples * (BACKWARD if grad else 1)
        if (full := self._to_fill(variant, samples)) is not None:
            return self._run_compiled(function, model, filled(data, full), variant.of(full))[:samples]
        if variant in self._known or self._pays(variant, samples, layers):
            return self._run_compiled(function, model, data, variant)
        return function(model, data)

    def _to_fill(self, variant: Variant, samples: int) -> int | None:
        """Return the size of a compiled batch that this one can be filled up to; None where there is none."""
        if variant.training or variant in self._known:  # in training mode a sample depends on the rest of its batch
            return None
        sizes = sorted({known.samples for known in self._known if known.of(samples) == variant})
        return next((size for size in sizes if samples < size <= SLACK * samples), None)

    def _pays(self, variant: Variant, samples: int, layers: int) -> bool:
        if len(self._known) >= MOST:
            return False
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
        """Tell whether nobody else is compiling this now. Else the model runs as it is until they are done.

        Workers of a study begin at the same time and have the same model; all at once they would compile at length what
        the first of them can leave for the others.
        """
        if mark is None or variant in self._claims:
            return True
        try:
            with suppress(OSError):  # a help, no more
                mark.parent.mkdir(parents=True, exist_ok=True)
                self._claims[variant] = Lock(mark.with_suffix(".lock"))
        except UsageError:
            return False
        return True

    def _mark(self, variant: Variant) -> Path | None:
        """Return a file beside torch's cache of compiled code that says: this was compiled on this machine."""
        if (folder := cache_folder()) is None:
            return None
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        text = f"{torch.__version__} {name} {variant}"
        return folder / "unweave" / hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _run_compiled(
        self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data, variant: Variant
    ) -> Tensor:
        if variant in self._known:
            return function(self._compile(model), data)
        try:
            with allow_variants(4 * MOST):
                found = function(self._compile(model), data)
            self._note(variant)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler can run into; a fault of the model itself shows again below
            self._failed = True
            found = function(model, data)
            warnings.warn(
                f"The model could not be compiled and runs as it is: {_cause(error)}", RunWarning, stacklevel=2
            )
        finally:
            if (claim := self._claims.pop(variant, None)) is not None:
                claim.release()
        return found

    def _compile(self, model: nn.Module) -> Any:
        """Return the compiled model beside this one; its code is made when a batch arrives."""
        if model not in self._compiled:
            self._compiled[model] = torch.compile(model, dynamic=False, backend=BACKEND)
        return self._compiled[model]

    def _note(self, variant: Variant) -> None:
        """Remember that there is code for this now, here and for other processes."""
        self._known.add(variant)
        _WARM.add(variant)
        if (mark := self._mark(variant)) is not None:
            with suppress(OSError):  # a help to later runs, no more
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()

    def _kind(self, model: nn.Module) -> tuple[str, int]:
        """Return what distinguishes the model's code from another's, and how many layers it has."""
        if model not in self._kinds:
            weights = tuple(
                (name, tuple(p.shape), p.stride(), p.dtype, p.requires_grad) for name, p in model.named_parameters()
            )
            layers = sum(1 for module in model.modules() if next(module.children(), None) is None)
            text = f"{type(model)} {model} {weights} {self.device}"
            self._kinds[model] = (hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), layers)
        return self._kinds[model]


def filled(data: Data, samples: int) -> Data:
    """Fill a batch up with copies of its first sample.

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
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
