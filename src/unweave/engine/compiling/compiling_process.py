"""The process that compiles in the background. `unweave.engine.compiling.background` starts this file.

It reads orders from standard input while it imports torch, and ends at once when standard input ends, because then the
process that started it has ended. It never collects garbage: that takes a tenth of the time, and it does not live long.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unweave.data import Data
    from unweave.engine.compiling.background import Order


def main() -> None:
    """Work on the orders as they come."""
    gc.disable()
    orders: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(orders,), daemon=True).start()
    from unweave.engine.compiling.described import make
    from unweave.engine.compiling.torch_internals import compare_briefly, import_compiler

    import_compiler()
    compare_briefly()
    while True:
        work(make(orders.get()))


def _listen(orders: SimpleQueue[bytes]) -> None:
    while head := sys.stdin.buffer.read(8):
        orders.put(sys.stdin.buffer.read(int.from_bytes(head, "little")))
    os._exit(0)


def work(order: Order) -> None:
    """Run a forward and a backward pass of each size with compiled code, and create its file when it is ready."""
    import torch

    from unweave.engine.compiling.forwards import compiled
    from unweave.engine.compiling.torch_internals import allow_variants
    from unweave.runtime import autocast

    torch.set_float32_matmul_precision(order.products)
    torch.use_deterministic_algorithms(order.deterministic)
    device = order.device
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_per_process_memory_fraction(order.memory, device)
    callee = compiled(order.model, order.backend)
    precision: Any = "bfloat16" if order.autocast else "float32"
    with torch.set_grad_enabled(order.grad), allow_variants(4 * len(order.marks)):
        for size, mark in order.marks.items():
            with autocast(device, precision):
                found = order.function(callee, blank(order.data, size, device))
            if order.grad:
                found.sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            Path(mark).parent.mkdir(parents=True, exist_ok=True)
            Path(mark).touch()


def blank(form: Data, samples: int, device: Any) -> Data:
    """Return a batch of zeros with the form of another batch, but with this number of samples.

    >>> import torch
    >>> blank((torch.ones(3, 2), torch.ones(3)), 2, torch.device("cpu"))
    (tensor([[0., 0.],
            [0., 0.]]), tensor([0., 0.]))
    """
    import torch

    from unweave.data import map_tensors
    from unweave.engine.compiling.forwards import filled

    cut = map_tensors(lambda tensor: tensor[:samples], form)
    found: Data = map_tensors(lambda tensor: torch.zeros_like(tensor, device=device), filled(cut, samples))
    return found


if __name__ == "__main__":
    main()
