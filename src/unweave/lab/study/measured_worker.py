"""A process whose speed is measured beside others: it fine-tunes a benchmark's model whenever it is its turn."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import torch

from unweave.api import unlearn
from unweave.engine import Callback, Compute, Phase
from unweave.errors import Stopped
from unweave.lab.benchmarks import Benchmark
from unweave.methods import find_method, make_method
from unweave.runtime import pick_device

TOGETHER = 8  # steps between two looks at the clock
NEVER_MIND = 1e-12  # a step size that moves nothing


class Board:
    """What the measured processes and the one that measures tell each other."""

    def __init__(self, most: int) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self.most = most
        self.numbers = context.Value("i", 0)  # how many processes have a number
        self.active = context.Value("i", 0)  # how many take steps; −1: all end
        self.steps = context.Array("q", most, lock=False)
        self.bytes = context.Array("q", most, lock=False)
        self.room = context.Value("q", 0)  # bytes that were free on the device at first

    def join(self) -> int:
        """Return this process's number."""
        with self.numbers.get_lock():
            self.numbers.value += 1
            return int(self.numbers.value) - 1


class _Measured(Callback):
    """Counts the steps of a process, and lets it wait while it is not its turn."""

    def __init__(self, board: Board, device: torch.device) -> None:
        self.board, self.number, self.device = board, board.join(), device
        self.threads = torch.get_num_threads() * board.most  # of this process's parent

    def step(self, phase: Phase, number: int) -> dict[str, Any]:
        if number % TOGETHER == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
                self.board.bytes[self.number] = torch.cuda.max_memory_reserved(self.device)
            self.board.steps[self.number] = number
            self.wait()
        return {}

    def wait(self) -> None:
        """Wait for this process's turn; take its share of the threads."""
        while 0 <= self.board.active.value <= self.number:
            time.sleep(0.02)
        torch.set_num_threads(max(1, self.threads // max(1, self.board.active.value)))

    def wants_to_stop(self) -> bool:
        return bool(self.board.active.value < 0)


def be_measured(source: Callable[[], Benchmark], board: Board, *, computing: Compute) -> None:
    """Fine-tune the benchmark's model whenever it is this process's turn."""
    benchmark = source()
    task, method = benchmark.load(), find_method("ft")
    measured = _Measured(board, pick_device(computing.device))
    measured.wait()
    if board.active.value < 0:
        return
    if measured.number == 0 and measured.device.type == "cuda":
        board.room.value = torch.cuda.mem_get_info(measured.device)[0]
    settings = {**benchmark.settings_for(method, None), "epochs": 10**6, "learning_rate": NEVER_MIND}
    given = benchmark.given(task)
    try:
        unlearn(
            benchmark.initial(0),
            task.train,
            make_method("ft", settings).with_given(**given),
            compute=computing,
            guard=None,
            callbacks=[measured],
        )
    except Stopped:
        return
