"""Compiling in a process of its own, while this one takes its steps uncompiled.

The process compiles a copy of the model's form, without its weights, and so fills torch's cache on disk. A mark
(`unweave.engine.compiling.variants`) tells that a variant is ready; this process then finds the code within seconds.
The other process has to import torch first. So it starts with the run where later phases have much to do, and else when
it is clear that it pays. It ends with the run, or when this process ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from typing import IO, Any

import torch
from torch import Tensor, nn

from unweave.data import Data, map_tensors
from unweave.engine.compiling.described import describe
from unweave.engine.compiling.torch_internals import import_compiler
from unweave.engine.compiling.variants import Marks, Variant
from unweave.runtime import processes

log = logging.getLogger(__name__)

CORES = 4  # with fewer, compiling would slow the steps down
SHORT = 1e-4  # seconds after which a thread makes way for another, so that importing does not hold up steps
MANY = 250_000  # samples that later phases differentiate; with fewer, starting the process ahead is not worth it
SHARE = 0.5  # of the free memory of the device that the other process may take
PROGRAM = Path(__file__).with_name("compiling_process.py")


@dataclass(frozen=True)
class Order:
    """What to compile: the passes of a function of a model, and the file to create when one is ready, by their size."""

    function: Callable[[nn.Module, Data], Tensor]
    model: nn.Module
    data: Data
    device: torch.device
    backend: Any
    grad: bool
    autocast: bool
    products: str  # how exact products in float32 are
    deterministic: bool
    memory: float  # share of the device's memory that may be taken
    marks: dict[int, str]


class Background:
    """The other process. While ``allowed`` is false, code is compiled as without it: at first, and after a failure."""

    def __init__(self, marks: Marks, most_memory: int | None = None) -> None:
        self.marks, self.device = marks, marks.device
        self.allowed, self._most_memory = False, most_memory
        self.ordered: list[Variant] = []
        self.since = 0.0  # when the last order was given
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def open(self) -> None:
        """Allow orders where that is possible."""
        self.allowed = can_compile_beside(self.device) and self._most_memory is None

    def expect(self, samples: int) -> None:
        """Start the process ahead of the first order if later phases have so many samples to run.

        Not in one of many workers, which would all import torch at the same time.
        """
        if samples >= MANY and self.allowed and multiprocessing.parent_process() is None and processes.count() == 1:
            try:
                self._start()
            except OSError as error:
                self._fail(str(error))

    def order(
        self,
        function: Callable[[nn.Module, Data], Tensor],
        model: nn.Module,
        data: Data,
        variants: Sequence[Variant],
        backend: Any,
    ) -> None:
        """Have variants compiled that differ in their number of samples, except what another process compiles."""
        first, memory = variants[0], self._memory()
        claimed = [variant for variant in variants if memory and self.marks.claim(variant)]
        self.ordered += claimed
        self.since = time.perf_counter()
        marks = {variant.samples: str(path) for variant in claimed if (path := self.marks.path(variant))}
        if not marks:
            self.allowed = bool(memory)
            return
        form = map_tensors(partial(torch.empty_like, device="meta"), data)
        order = Order(
            function,
            model,
            form,
            self.device,
            backend,
            grad=first.grad,
            autocast=first.autocast,
            products=torch.get_float32_matmul_precision(),
            deterministic=torch.are_deterministic_algorithms_enabled(),
            memory=memory,
            marks=marks,
        )
        try:
            content = describe(order)
            self._start()
        except Exception as error:  # pickling can raise anything
            self._fail(str(error).split("\n", 1)[0])
            return
        log.info("Compiling in the background for batches of %s samples.", ", ".join(map(str, marks)))
        Thread(target=self._send, args=(content,), daemon=True).start()  # the other side may still import torch

    def look(self) -> None:
        """Note what is ready, and whether the process has failed."""
        ready = [variant for variant in self.ordered if self.marks.has(variant)]
        self.marks.release(*ready)
        self.ordered = [variant for variant in self.ordered if variant not in ready]
        if self._process is not None and self._process.poll() is not None:
            self._fail(self._last_words())

    def is_ready(self) -> bool:
        """Tell whether the compiler is imported. A thread does that, so that no step waits for it."""
        return not self._importing.is_alive()

    @cached_property
    def _importing(self) -> Thread:
        thread = Thread(target=_import_beside_others, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End the process, and let others compile what it has not compiled. No orders are allowed from now on."""
        self.allowed = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            with suppress(OSError):
                self._stdin.close()
        if self._errors is not None:
            self._errors.close()
        self._process = self._errors = None
        self.marks.release(*self.ordered)
        self.ordered = []

    def _memory(self) -> float:
        """Return the share of the device's memory that the other process may take; 0 if too little is free."""
        if self.device.type != "cuda":
            return 1.0
        free, total = torch.cuda.mem_get_info(self.device)
        return SHARE * free / total if SHARE * free >= torch.cuda.max_memory_reserved(self.device) else 0.0

    def _start(self) -> None:
        if self._process is not None:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by `stop`
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path), **_alone()},
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other
        )

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    def _send(self, content: bytes) -> None:
        """Send an order. The stream stays open; where it ends, the other process knows that this one has ended."""
        with suppress(OSError, ValueError, AssertionError):  # it has ended, which `look` finds out
            self._stdin.write(len(content).to_bytes(8, "little") + content)
            self._stdin.flush()

    def _fail(self, why: str) -> None:
        log.info("Nothing more is compiled in the background: %s", why)
        self.stop()

    def _last_words(self) -> str:
        if self._errors is None:
            return "no reason is known"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it was ended from outside"


def _import_beside_others() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT)
    import_compiler()
    sys.setswitchinterval(before)


def can_compile_beside(device: torch.device) -> bool:
    """Tell whether another process can compile for a device without slowing this one down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return device.type == "cuda" and cores >= CORES * processes.count()


def _alone() -> dict[str, str]:
    """Return the environment of a process that works alone, if this one works with others."""
    return {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"} if processes.launched() > 1 else {}
