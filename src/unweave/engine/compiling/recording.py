"""One forward pass, and its backward pass, as two CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from unweave.data import Data, map_tensors, tensors_of
from unweave.engine.compiling.torch_internals import end_failed_recording
from unweave.errors import UsageError

Parts: TypeAlias = "list[Tensor | None]"
SOME = 512  # values of a tensor that are compared
AGREED = 0.02  # relative difference of two passes that rounding may cause in bfloat16


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream that passes are tried and recorded on.

    Torch keeps unused memory, and a workspace for products, for every stream apart, so a new one each time costs the
    memory of another pass.
    """
    return torch.cuda.Stream(device)


def record(work: Callable[[], Parts], pool: Any, device: torch.device) -> tuple[Parts, Callable[[], None]]:
    """Record what ``work`` does on the device; return its results, which stay in place, and how to repeat it."""
    graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    try:
        with (
            torch.cuda.device(device),
            torch.cuda.graph(graph, pool=pool, stream=side_stream(device), capture_error_mode="thread_local"),
        ):
            found = work()
    except BaseException:  # torch up to 2.11 does neither if recording fails
        torch.cuda.set_stream(before)
        end_failed_recording(pool, device)
        raise
    return [None if part is None else part.detach() for part in found], graph.replay


class Recording:
    """The passes of one function of a model, for one shape of batch.

    Between a forward pass and its backward pass a recording is waiting: another forward pass would overwrite what the
    backward pass needs.
    """

    def __init__(
        self,
        call: Callable[[Data], Tensor],
        function: Any,
        model: nn.Module,
        data: Data,
        parameters: Sequence[nn.Parameter],
        device: torch.device,
    ) -> None:
        self._call, self.model, self.device = call, model, device
        self._function = function  # kept because its id is a key
        self.data = map_tensors(torch.clone, data)
        self.parameters = list(parameters) if torch.is_grad_enabled() else []
        self.is_waiting = False
        self.launching = 1.0  # share of a plain pass's time that the host needs for launching it
        self._read = [*model.parameters(), *model.buffers()]
        self._places = [tensor.data_ptr() for tensor in self._read]
        self._anchor = torch.zeros((), device=device, requires_grad=True)
        self._live: Tensor | None = None

    def stands(self) -> bool:
        """Tell whether the model's tensors are where they were recorded."""
        return self._places == [tensor.data_ptr() for tensor in self._read]

    # Recording

    def plain(self) -> Parts:
        """Run both passes as they are written, beside other work; return the results and the gradient, sketched."""
        if self.device.type != "cuda":
            return sketched([*self._forward(), *self._backward()])
        torch.cuda.synchronize(self.device)
        begun = time.perf_counter()
        with torch.cuda.stream(side_stream(self.device)):
            parts = [*self._forward(), *self._backward()]
            launched = time.perf_counter()
            torch.cuda.synchronize(self.device)
            self.launching = (launched - begun) / (time.perf_counter() - begun)
            found = sketched(parts)
        self._live = None  # so that its activations are freed
        torch.cuda.synchronize(self.device)
        return found

    def record(self) -> None:
        """Record both passes."""
        pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        (found,), self._repeat_forward = record(self._forward, pool, self.device)
        if found is None:
            raise RuntimeError("a pass has no results")
        self.results = found
        if self.parameters:
            self.gradient, self._repeat_backward = record(self._backward, pool, self.device)
        self._live = None

    def repeated(self) -> Parts:
        """Repeat both recorded passes for the recorded batch; return what `plain` returns."""
        self._repeat_forward()
        if self.parameters:
            self.weights.fill_(1)
            self._repeat_backward()
        return sketched([self.results, *(self.gradient if self.parameters else [])])

    def _forward(self) -> Parts:
        self._live = self._call(self.data)
        if not hasattr(self, "weights"):
            self.weights = torch.ones_like(self._live, requires_grad=False)
        return [self._live]

    def _backward(self) -> Parts:
        if not self.parameters or self._live is None:
            return []
        return list(torch.autograd.grad(self._live, self.parameters, self.weights, allow_unused=True))

    # Repeating

    def run(self, data: Data) -> Tensor:
        """Return the results for a batch of the recorded shape."""
        if not self.parameters:
            return self.forward(data)
        found: Tensor = _Repeated.apply(self._anchor, self, data)  # type: ignore[no-untyped-call]
        return found

    def forward(self, data: Data) -> Tensor:
        """Repeat the forward pass with this batch."""
        for mine, given in zip(tensors_of(self.data), tensors_of(data), strict=True):
            mine.copy_(given, non_blocking=True)
        self._repeat_forward()
        return self.results.clone()

    def backward(self, weights: Tensor) -> None:
        """Repeat the backward pass for the weighted sum of the results; add to the parameters' gradients."""
        self.weights.copy_(weights)
        self._repeat_backward()
        pairs = [(p, part) for p, part in zip(self.parameters, self.gradient, strict=True) if part is not None]
        old = [(p.grad, part) for p, part in pairs if p.grad is not None]
        new = [(p, torch.empty_like(p), part) for p, part in pairs if p.grad is None]
        if old:
            torch._foreach_add_([mine for mine, _ in old], [part for _, part in old])
        if new:
            torch._foreach_copy_([mine for _, mine, _ in new], [part for *_, part in new])
        for parameter, mine, _ in new:
            parameter.grad = mine


class _Repeated(torch.autograd.Function):
    """A repeated pass as a step of a computation that torch differentiates."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, recording: Recording, data: Data) -> Tensor:
        ctx.recording = recording
        recording.is_waiting = True
        return recording.forward(data)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[None, ...]:
        if torch.is_grad_enabled():
            raise UsageError("Recorded passes have no second derivatives (create_graph=True). Set compile='off'.")
        ctx.recording.backward(weights)
        ctx.recording.is_waiting = False
        return None, None, None


def sketched(parts: Parts) -> list[Tensor | None]:
    """Return the length of each part and some of its values, which suffice to compare two lists.

    >>> [part.tolist() for part in sketched([torch.tensor([3.0, 4.0])])]
    [[5.0, 3.0, 4.0]]
    """
    return [None if part is None else _sketch(part) for part in parts]


def _sketch(part: Tensor) -> Tensor:
    some = part.detach().flatten()[:: max(1, part.numel() // SOME)].double()
    return torch.cat([torch.linalg.vector_norm(part.detach(), dtype=torch.float64)[None], some])


def near(first: Parts, second: Parts) -> bool:
    """Tell whether two lists of tensors agree but for rounding.

    >>> near([torch.ones(3), None], [torch.ones(3) * 1.001, None]), near([torch.ones(3)], [torch.zeros(3)])
    (True, False)
    """
    if [part is None for part in first] != [part is None for part in second]:
        return False
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    apart = torch.stack([(a - b).square().sum() for a, b in pairs]).sum()
    size = torch.stack([a.square().sum() for a, _ in pairs]).sum()
    return bool(apart <= AGREED**2 * size)
