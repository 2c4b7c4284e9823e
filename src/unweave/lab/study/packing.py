"""How many workers share a device: as many as its memory holds, while another one still makes all together faster.

A small model leaves most of a GPU idle, so several runs side by side finish earlier than one after the other. How many
is measured: one process, then two, four and so on fine-tune the benchmark's model for some seconds each.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from unweave.api import unlearn
from unweave.engine import Callback, Compute, Phase
from unweave.errors import RunError, Stopped
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.pool import dead, started, still_running
from unweave.methods import find_method, make_method
from unweave.runtime import pick_device

log = logging.getLogger(__name__)

MOST = 16  # workers of one device
SECONDS = 3.0  # of a look at the speed
SETTLED, LOOKS = 0.1, 30  # looks go on until two differ by no more, at most so many: code may be compiled at first
GAIN = 1.1  # with twice as many workers, all together must be this many times as fast
OWN = 1 << 30  # bytes that a process needs on a GPU before its first tensor
SPARE = 2  # other methods may need this many times the memory of fine-tuning
TOGETHER = 8  # steps between two looks at the clock
NEVER_MIND = 1e-12  # a step size that moves nothing


@dataclass(frozen=True)
class Packing:
    """How many workers share a device, and what was measured.

    >>> print(Packing(4, {1: 10.0, 2: 19.0, 4: 31.0, 8: 32.0}, "8 are hardly faster"))
    4 workers share the device: together 3.1 times as fast as one (ideal: 4.0). 8 are hardly faster.
    """

    workers: int
    rates: dict[int, float]  # steps per second of all workers together, by their number
    limit: str  # what kept it from more

    def __str__(self) -> str:
        if self.workers == 1:
            return f"One worker has the device to itself. {self.limit}."
        times = self.rates[self.workers] / self.rates[1]
        return (
            f"{self.workers} workers share the device: together {times:.1f} times as fast as one "
            f"(ideal: {self.workers:.1f}). {self.limit}."
        )


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


def packed(source: Callable[[], Benchmark], computing: Compute) -> Packing:
    """Measure how many workers share the device best.

    Args:
        source: Makes the benchmark. It must be picklable.
        computing: Where and how the workers compute.
    """
    cores = os.cpu_count() or 1
    board = Board(min(MOST, cores))
    with started(_be_measured, source, board, workers=board.most, computing=computing) as processes:
        try:
            found = _doubled(board, processes)
        finally:
            board.active.value = -1
        while still_running(processes):
            pass
    return found


def _doubled(board: Board, processes: Any) -> Packing:
    """Double the number of workers until that no longer pays."""
    _until(lambda: board.numbers.value == board.most, processes)  # so that nothing that starts disturbs the measurement
    rates: dict[int, float] = {}
    best, count, limit = 1, 1, "The processor has no cores for more"
    while count <= board.most:
        rates[count] = _rate(board, count, processes)
        if count > 1 and rates[count] < GAIN * rates[best]:
            limit = f"{count} are hardly faster"
            break
        best, count = count, 2 * count
        needed = SPARE * max(board.bytes) + OWN
        if board.room.value and count * needed > board.room.value:
            limit = f"{count} may not fit into its memory"
            break
    return Packing(best, rates, limit)


def _rate(board: Board, count: int, processes: Any) -> float:
    """Return the steps per second of the first ``count`` processes together."""
    board.active.value = count
    before = list(board.steps[:count])
    _until(lambda: all(board.steps[n] >= before[n] + 2 * TOGETHER for n in range(count)), processes)
    rate = 0.0
    for _ in range(LOOKS):
        last, rate = rate, _look(board, count, processes)
        if abs(rate - last) <= SETTLED * rate:
            break
    return rate


def _look(board: Board, count: int, processes: Any) -> float:
    """Return the steps per second of the first ``count`` processes within some seconds."""
    first, begun = sum(board.steps[:count]), time.perf_counter()
    time.sleep(SECONDS)
    _until(lambda: sum(board.steps[:count]) > first, processes)
    return float(sum(board.steps[:count]) - first) / (time.perf_counter() - begun)


def _until(reached: Callable[[], bool], processes: Any) -> None:
    """Wait until something is reached; raise if a process fails before."""
    while not reached():
        if failed := dead(processes):
            raise RunError(f"{failed} ended while the best number of workers was measured. Give --workers a number.")
        time.sleep(0.02)


def _be_measured(source: Callable[[], Benchmark], board: Board, *, computing: Compute) -> None:
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


@contextmanager
def shared_gpu(computing: Compute) -> Iterator[None]:
    """Let the processes that start in this block use the GPU at the same time, with NVIDIA's MPS where it can be had.

    Without it they take turns on the GPU.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or pick_device(computing.device).type != "cuda" or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="unweave-mps-") as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **own}
        if not _asked([control, "-d"], environment):
            yield
            return
        log.info("The workers share the GPU through MPS.")
        os.environ.update(own)
        try:
            yield
        finally:
            for name in own:
                os.environ.pop(name, None)
            _asked([control], environment, words="quit\n")


def _asked(command: Sequence[str], environment: dict[str, str], words: str = "") -> bool:
    """Run a command of MPS; return whether it worked."""
    try:
        done = subprocess.run(
            command, env=environment, input=words, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.info("MPS is not used: %s", error)
        return False
    return done.returncode == 0
