"""Micro-batches: batches in pieces that fit into memory, with the results of whole batches.

A method's objective is a function of the vector of a batch's losses. The losses are computed first, piece by piece and
without gradients. The objective gives each loss its weight. Then every piece is run again, and its weighted losses are
differentiated. This costs one more forward pass and holds the activations of one piece at most.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from unweave.data import Data, map_tensors, tensors_of
from unweave.errors import RunError, RunWarning, UsageError
from unweave.runtime import give_back

Run: TypeAlias = Callable[[Data], Tensor]  # a row of results for every sample, each depending on its sample only


class MicroBatches:
    """Runs batches whole or in pieces of ``size`` samples.

    If memory runs out, what can be given back is given back and the same pass is tried again; if memory runs out again,
    the size is halved. So the pieces get smaller only where a pass needs more than there is, not because something else
    held the memory.
    """

    def __init__(
        self,
        size: int | None,
        device: torch.device,
        parameters: Sequence[nn.Parameter],
        *,
        in_step: bool = False,
        quiet: bool = False,
        when_short: Callable[[], object] = lambda: None,
    ) -> None:
        if size is not None and size < 1:
            raise UsageError(f"micro_batch is {size}, but must be at least 1.")
        self.size, self.parameters, self._quiet = size, list(parameters), quiet
        self.device, self._is_host = device, device.type == "cpu"
        self._watched = device.type == "cuda" and not in_step  # elsewhere running out of memory cannot be caught
        self._in_step = in_step  # other processes would wait if this one repeated a pass
        self._when_short = when_short  # lets go of memory that can be done without
        self._tried_again: set[int] = set()  # sizes
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def run(self, run: Run, data: Data, *, training: bool) -> Tensor:
        """Return the results of ``run`` for the batch, with gradients if they are enabled."""
        if training:  # batch statistics and dropout make a sample's result depend on the rest of the batch
            if self.size is not None and _length(data) > self.size:
                raise UsageError(
                    f"A batch of {_length(data)} samples cannot be split into micro-batches of {self.size} in training "
                    "mode of normalisation and dropout. Use normalisation=eval or smaller batches."
                )
            return run(data)
        if self.size is None and self._is_host:
            return run(data)
        if torch.is_grad_enabled() and (self._watched or self.size is not None):
            found: Tensor = _Differentiated.apply(self._anchor, self, run, data)  # type: ignore[no-untyped-call]
            return found
        return self.values(run, data)

    def values(self, run: Run, data: Data) -> Tensor:
        """Return the results of all pieces."""
        while True:
            try:
                found = [run(part) for part in self._pieces(data)]
                return found[0] if len(found) == 1 else torch.cat(found)
            except torch.OutOfMemoryError as error:
                short = _without_frames(error)
            self.make_room(_length(data), short)

    def differentiate(self, run: Run, data: Data, weights: Tensor, parameters: list[nn.Parameter]) -> None:
        """Add the gradient of the weighted sum of the results to these parameters' ``grad``, piece by piece."""
        count = _length(data)
        if self.size is not None and count > self.size:
            for part, some in zip(self._pieces(data), weights.split(self.size), strict=True):
                self.differentiate(run, part, some, parameters)
            return
        with torch.enable_grad():
            left = self._backward(lambda: run(data), weights, parameters)
        if left:
            self.differentiate(run, data, weights, left)

    def _backward(
        self, forward: Callable[[], Tensor], weights: Tensor, parameters: list[nn.Parameter]
    ) -> list[nn.Parameter]:
        """Differentiate; return the parameters whose gradient is missing because memory ran out.

        A parameter's gradient is added in one operation, so it is either complete or missing.
        """
        before = [_version(parameter) for parameter in parameters]
        try:
            some = None if parameters is self.parameters else parameters  # listing all of them takes time
            torch.autograd.backward(forward(), weights, inputs=some)
            return []
        except torch.OutOfMemoryError as error:
            short = _without_frames(error)
        self.make_room(len(weights), short)
        return [p for p, version in zip(parameters, before, strict=True) if _version(p) == version]

    def _pieces(self, data: Data) -> list[Data]:
        if self.size is None or _length(data) <= self.size:
            return [data]
        size = self.size  # `self.size` may shrink while the pieces run
        starts = range(0, _length(data), size)
        return [map_tensors(operator.itemgetter(slice(start, start + size)), data) for start in starts]

    def make_room(self, count: int, error: Exception) -> None:
        """Prepare to try again after memory ran out in a batch of ``count`` samples: give memory back, or halve."""
        tried = min(count, self.size or count)
        if self._in_step:
            raise RunError(
                f"The device ran out of memory with {tried} samples at once. Use --micro-batch "
                f"{(tried + 1) // 2} (micro_batch) or more processes."
            ) from error
        self._when_short()
        give_back(self.device)
        if tried not in self._tried_again:
            self._tried_again.add(tried)
            return
        if tried == 1:
            raise RunError(
                "The device ran out of memory with a single sample. Use a device with more memory, or a higher "
                "max_memory if there is one."
            ) from error
        self.size = (tried + 1) // 2
        if self._quiet:
            return
        warnings.warn(
            f"The device ran out of memory with {tried} samples at once. The run continues with {self.size}; "
            "results stay the same.",
            RunWarning,
            stacklevel=2,
        )


class _Differentiated(torch.autograd.Function):
    """The results of a batch, differentiated whole or, if memory is short, piece by piece."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, micro: MicroBatches, run: Run, data: Data) -> Tensor:
        ctx.micro, ctx.run, ctx.data, ctx.whole = micro, run, data, None
        while micro.size is None or _length(data) <= micro.size:
            try:
                with torch.enable_grad():
                    whole = run(data)
                ctx.whole = whole
                return whole.detach()
            except torch.OutOfMemoryError as error:
                short = _without_frames(error)
            micro.make_room(_length(data), short)
        return micro.values(run, data)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[None, ...]:
        micro: MicroBatches = ctx.micro
        left = micro.parameters
        if ctx.whole is not None:
            whole, ctx.whole = [ctx.whole], None  # so that the activations are freed with the call
            left = micro._backward(whole.pop, weights, left)
        if left:
            micro.differentiate(ctx.run, ctx.data, weights, left)
        return None, None, None, None


def _length(data: Data) -> int:
    return len(tensors_of(data)[0])


def _without_frames(error: Exception) -> Exception:
    """Return an error without the calls that it came through, whose variables hold the memory of the failed pass."""
    return error.with_traceback(None)


def _version(parameter: nn.Parameter) -> int | None:
    """Return the version of a gradient, which changes whenever something is added to it."""
    return None if parameter.grad is None else parameter.grad._version
