"""How many workers share a device: as many as its memory holds, while another one still makes all together faster.

A small model leaves most of a GPU idle, so several runs side by side finish earlier than one after the other. How many
is measured: one process, then two, four and so on fine-tune the benchmark's model for some seconds each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unweave.engine import Compute
from unweave.errors import RunError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.measured_worker import TOGETHER, Board, be_measured
from unweave.lab.study.pool import dead, started, still_running

MOST = 16  # workers of one device
SECONDS = 3.0  # of a look at the speed
SETTLED, LOOKS = 0.1, 30  # looks go on until two differ by no more, at most so many: code may be compiled at first
GAIN = 1.1  # with twice as many workers, all together must be this many times as fast
OWN = 1 << 30  # bytes that a process needs on a GPU before its first tensor
SPARE = 2  # other methods may need this many times the memory of fine-tuning


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


def packed(source: Callable[[], Benchmark], computing: Compute) -> Packing:
    """Measure how many workers share the device best.

    Args:
        source: Makes the benchmark. It must be picklable.
        computing: Where and how the workers compute.
    """
    cores = os.cpu_count() or 1
    board = Board(min(MOST, cores))
    with started(be_measured, source, board, workers=board.most, computing=computing) as processes:
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
