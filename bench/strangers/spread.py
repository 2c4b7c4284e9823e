"""Running the jobs of a schedule in several processes, each with one thread."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from bench.strangers.oracle import default, tried
from bench.strangers.originals import Case
from bench.strangers.schedule import Job, Schedule
from bench.strangers.tasks import find_task
from unweave.errors import RunError, RunWarning

LOOK_UP = 1.0  # seconds after which time is looked at, though no job has ended


class Worker:
    """Runs jobs; it keeps the data and the models that it has read."""

    def __init__(self, data: str | None, cache: Path) -> None:
        self.data, self.cache = data, cache
        self.cases: dict[tuple[str, int], Case] = {}

    def run(self, job: Job) -> dict[str, Any] | None:
        """Run one job and return its row, with the seconds of a processor; None for training."""
        case = self.cases.setdefault(
            (job.task, job.seed), Case(find_task(job.task), job.seed, data=self.data, cache=self.cache)
        )
        case.prepare()  # so that it does not count as time of the trial
        if job.trains:
            return None
        begun = time.process_time()
        row = default(case) if job.method is None else tried(case, job.method, job.number, job.settings)
        return row | {"seconds": round(time.process_time() - begun, 2)}


def spread(
    schedule: Schedule,
    keep: Callable[[dict[str, Any]], None],
    *,
    jobs: int,
    seconds: float,
    data: str | None,
    cache: Path,
) -> None:
    """Run a schedule until it is over or the time is up.

    Args:
        schedule: What to run.
        keep: Called with every row, in this process.
        jobs: The number of processes; with 1, everything runs in this one.
        seconds: When time is up, what still runs is stopped and leaves no row.
        data: The folder of data sets.
        cache: The folder of trained models.
    """
    end = time.monotonic() + seconds
    if jobs == 1:
        worker = Worker(data, cache)
        while time.monotonic() < end and (job := schedule.next(left=end - time.monotonic(), jobs=1)):
            _note(schedule, keep, job, worker.run(job))
        return
    with _workers(jobs, data, cache) as idle:
        busy: dict[Any, Job] = {}
        while time.monotonic() < end:
            while idle and (found := schedule.next(left=end - time.monotonic(), jobs=jobs)):
                connection = idle.pop()
                connection.send(found)
                busy[connection] = found
            if not busy:
                return
            for connection in wait(list(busy), timeout=LOOK_UP):
                job = busy.pop(connection)
                _note(schedule, keep, job, _received(connection, job))
                idle.append(connection)


def _note(schedule: Schedule, keep: Callable[[dict[str, Any]], None], job: Job, row: dict[str, Any] | None) -> None:
    if row is not None:
        keep(row)
    schedule.ended(job, row)


def _received(connection: Any, job: Job) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | str | None = connection.recv()
    except EOFError:
        found = "The process ended."
    if isinstance(found, str):
        raise RunError(f"{job} failed: {found} The rows so far are kept; the same command goes on.")
    return found


@contextmanager
def _workers(jobs: int, data: str | None, cache: Path) -> Iterator[list[Any]]:
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    connections: list[Connection] = []
    try:
        for _ in range(jobs):
            mine, theirs = context.Pipe()
            processes.append(context.Process(target=_serve, args=(theirs, data, cache), daemon=True))
            processes[-1].start()
            theirs.close()
            connections.append(mine)
        yield list(connections)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _serve(connection: Connection, data: str | None, cache: Path) -> None:
    """Run jobs until the other side is gone."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RunWarning)
    worker = Worker(data, cache)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            connection.send(worker.run(job))
        except Exception as error:  # the parent says it, with the job
            connection.send(f"{type(error).__name__}: {error}")
