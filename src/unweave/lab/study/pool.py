"""Worker processes of one machine that share a folder: start them, wait for them, end them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from unweave.engine import Compute
from unweave.errors import RunError, UsageError
from unweave.lab.study.cluster import ClusterTasks, on_cluster

LOOK_EVERY, GRACE = 0.3, 10.0  # seconds


Workers = Sequence[SpawnProcess] | ClusterTasks


@contextmanager
def started(
    work: Callable[..., None],
    *arguments: Any,
    workers: int,
    computing: Compute,
    cluster: str | None = None,
    **more: Any,
) -> Iterator[Workers]:
    """Start workers that each call ``work``: on this machine or, with an address, on a Ray cluster.

    Workers of this machine get their own device and a share of this process's threads.

    ``OMP_NUM_THREADS`` limits the threads to share, where several commands run side by side. An exception in the block
    ends the workers.
    """
    if workers < 1:
        raise UsageError(f"There must be at least one worker, not {workers}.")
    if cluster is not None:
        with on_cluster(cluster, work, *arguments, workers=workers, computing=computing, **more) as tasks:
            yield tasks
        return
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=_be_worker,
            args=(work, *arguments),
            kwargs={
                **more,
                "computing": replace(computing, device=_device(computing.device, number)),
                "threads": max(1, torch.get_num_threads() // workers),
            },
            name=f"worker {number}",
        )
        for number in range(workers)
    ]
    try:
        _start(processes)
        yield processes
    except BaseException:
        _stop(processes)
        raise


def still_running(processes: Workers) -> bool:
    """Wait a moment, or until a worker ends; return whether any was running."""
    if isinstance(processes, ClusterTasks):
        return processes.running()
    running = [process.sentinel for process in processes if process.exitcode is None]
    if running:
        wait(running, timeout=LOOK_EVERY)
    return bool(running)


def dead(processes: Workers) -> str:
    """Name the workers that failed, with their exit codes; empty if none did."""
    if isinstance(processes, ClusterTasks):
        return processes.failed()
    return " and ".join(f"{process.name} (exit code {process.exitcode})" for process in processes if process.exitcode)


def _be_worker(work: Callable[..., None], *arguments: Any, threads: int, **more: Any) -> None:
    """Run ``work`` in a worker process; an error ends it with a message of one line."""
    _end_with_parent()
    torch.set_num_threads(threads)
    try:
        work(*arguments, **more)
    except (UsageError, RunError, OSError) as error:
        raise SystemExit(f"unweave: {error}") from None


def _start(processes: Sequence[SpawnProcess]) -> None:
    """Start the workers so that they ignore Ctrl-C, which a terminal sends to all: this process ends them in order."""
    hears = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if hears else None
    try:
        for process in processes:
            process.start()
    finally:
        if hears:
            signal.signal(signal.SIGINT, before)


def _stop(processes: Sequence[SpawnProcess]) -> None:
    """End the workers. The next start resumes their work from its checkpoints."""
    running = [process for process in processes if process.pid is not None]
    for process in running:
        process.terminate()
    end = time.monotonic() + GRACE
    for process in running:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _device(device: str | torch.device | None, number: int) -> str | torch.device | None:
    """Distribute the workers over the GPUs."""
    if device in (None, "cuda") and torch.cuda.device_count() > 1:
        return f"cuda:{number % torch.cuda.device_count()}"
    return device


def _end_with_parent() -> None:
    """End this process when its parent ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
