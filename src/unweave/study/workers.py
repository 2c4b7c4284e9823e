"""Several processes of one machine on one study."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from unweave.benchmarks import Benchmark
from unweave.errors import RunError, UsageError
from unweave.study.cells import Cell
from unweave.study.progress import Progress
from unweave.study.store import Store
from unweave.study.study import Work, begin_study, end_study

LOOK_EVERY, GRACE = 0.3, 10.0  # seconds


def run_workers(
    source: Callable[[], Benchmark],
    cells: Sequence[Cell],
    out: Path,
    *,
    workers: int,
    device: str | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    keep: str = "all",
    time_limit: float | None = None,
    track: Sequence[str] = (),
    originals: Path | None = None,
    progress: Callable[[Store], Progress] | None = None,
) -> Store:
    """Do what `run_study` does, with several processes that share the machine.

    ``source`` makes the benchmark in each of them, so it must be a function that can be pickled, such as
    ``functools.partial(find_benchmark, "digits")``. A worker that dies is reported when the others
    are done.
    """
    if workers < 1:
        raise UsageError(f"A study needs at least one worker, not {workers}.")
    store = begin_study(
        source(),
        cells,
        out,
        device=device,
        presets=presets,
        keep=keep,
        track=track,
        originals=originals,
        workers=workers,
    )
    shown = progress(store) if progress else Progress(store, cells, workers=workers)
    since = time.time()
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    processes = [
        context.Process(
            target=_work,
            args=(source, list(cells), out),
            kwargs={
                "keep": keep,
                "time_limit": time_limit,
                "since": since,
                "track": list(track),
                "device": _device(device, number),
                "threads": threads,
            },
            name=f"worker {number}",
        )
        for number in range(workers)
    ]
    with shown:
        try:
            _start(processes)
            _follow(processes, store, cells, shown, since=since)
        except BaseException:
            _stop(processes)
            raise
    end_study(store)
    dead = [f"{process.name} (exit code {process.exitcode})" for process in processes if process.exitcode]
    if dead:
        left = [cell.name for cell in cells if not store.is_settled(cell, since=since)]
        rest = f" Not finished: {', '.join(left)}; the same command goes on with them." if left else ""
        raise RunError(f"{' and '.join(dead)} ended before the work was done; what was done is kept.{rest}")
    return store


def _start(processes: Sequence[SpawnProcess]) -> None:
    """Start the workers deaf to Ctrl-C, which a terminal sends to all of them: this process stops them in order."""
    hears = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if hears else None
    try:
        for process in processes:
            process.start()
    finally:
        if hears:
            signal.signal(signal.SIGINT, before)


def _follow(
    processes: Sequence[SpawnProcess], store: Store, cells: Sequence[Cell], shown: Progress, *, since: float
) -> None:
    """Show cells as they are settled, until every worker has ended."""
    waiting = [cell for cell in cells if not store.is_settled(cell, since=since)]
    while True:
        for cell in [cell for cell in waiting if store.is_settled(cell, since=since)]:
            waiting.remove(cell)
            shown.end(cell.name, failed=not store.is_done(cell))
        running = [process.sentinel for process in processes if process.exitcode is None]
        if not running:
            return
        wait(running, timeout=LOOK_EVERY)


def _stop(processes: Sequence[SpawnProcess]) -> None:
    """End the workers; what they were at goes on from its checkpoint at the next start."""
    running = [process for process in processes if process.pid is not None]
    for process in running:
        process.terminate()
    end = time.monotonic() + GRACE
    for process in running:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _device(device: str | None, number: int) -> str | None:
    """Give each worker a graphics card of its own, as far as there are."""
    if device in (None, "cuda") and torch.cuda.device_count() > 1:
        return f"cuda:{number % torch.cuda.device_count()}"
    return device


def _work(
    source: Callable[[], Benchmark],
    cells: Sequence[Cell],
    out: Path,
    *,
    device: str | None,
    keep: str,
    time_limit: float | None,
    since: float,
    track: Sequence[str],
    threads: int,
) -> None:
    """Be a worker: what a worker process runs."""
    _end_with_parent()
    torch.set_num_threads(threads)
    deadline = None if time_limit is None else time.monotonic() + time_limit - (time.time() - since)
    try:
        store = Store.open(out)
        work = Work(source(), cells, store, device=device, keep=keep, deadline=deadline, since=since, track=track)
        work.run()
    except (UsageError, RunError, OSError) as error:
        raise SystemExit(f"unweave: {error}") from None


def _end_with_parent() -> None:
    """End this process when its parent ends, however that ends: nobody would wait for its work."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
