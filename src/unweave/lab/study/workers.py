"""Run a study with several processes of one machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unweave.engine import Compute
from unweave.engine.compiling import Compile
from unweave.errors import RunError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.packages import require_package
from unweave.lab.study.cell_progress import CellProgress
from unweave.lab.study.cells import Cell
from unweave.lab.study.pool import Workers, dead, started, still_running
from unweave.lab.study.store import Store
from unweave.lab.study.study import CellRunner, begin_study, end_study
from unweave.runtime import Precision


def run_workers(
    source: Callable[[], Benchmark],
    cells: Sequence[Cell],
    out: Path,
    *,
    workers: int,
    cluster: str | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    keep: str = "all",
    time_limit: float | None = None,
    track: Sequence[str] = (),
    originals: Path | None = None,
    progress: Callable[[Store], CellProgress] | None = None,
) -> Store:
    """Run a study as `run_study` does, with several processes on this machine.

    With ``cluster``, the address of a Ray cluster, they run on its machines, which share ``out``. ``source`` makes the
    benchmark in each process, so it must be picklable, such as
    ``functools.partial(find_benchmark, "digits")``. A worker that dies is reported when the others are done.
    """
    computing = Compute(device=device, precision=precision, compile=compile)
    if cluster is not None:
        require_package("ray", "A cluster", extra="cluster")  # before the folder is created
    store = begin_study(
        source(),
        cells,
        out,
        computing=computing,
        presets=presets,
        keep=keep,
        track=track,
        originals=originals,
        workers=workers,
    )
    shown = progress(store) if progress else CellProgress(store, cells, workers=workers)
    since = time.time()
    more = {"keep": keep, "time_limit": time_limit, "since": since, "track": list(track)}
    with (
        shown,
        started(
            _work, source, list(cells), out.resolve(), workers=workers, computing=computing, cluster=cluster, **more
        ) as processes,
    ):
        _follow(processes, store, cells, shown, since=since)
        failed = dead(processes)
    end_study(store)
    if failed:
        left = [cell.name for cell in cells if not store.is_settled(cell, since=since)]
        rest = f" Not finished: {', '.join(left)}. The same command resumes them." if left else ""
        raise RunError(f"{failed} ended before the work was done. Finished cells are kept.{rest}")
    return store


def _follow(processes: Workers, store: Store, cells: Sequence[Cell], shown: CellProgress, *, since: float) -> None:
    """Show each cell when it is settled, until every worker has ended."""
    waiting = [cell for cell in cells if not store.is_settled(cell, since=since)]
    running = True
    while running:
        running = still_running(processes)
        for cell in [cell for cell in waiting if store.is_settled(cell, since=since)]:
            waiting.remove(cell)
            shown.end(cell.name, failed=not store.is_done(cell))


def _work(
    source: Callable[[], Benchmark],
    cells: Sequence[Cell],
    out: Path,
    *,
    computing: Compute,
    keep: str,
    time_limit: float | None,
    since: float,
    track: Sequence[str],
) -> None:
    """Run cells in a worker process."""
    deadline = None if time_limit is None else time.monotonic() + time_limit - (time.time() - since)
    store = Store.open(out)
    CellRunner(
        source(), cells, store, computing=computing, keep=keep, deadline=deadline, since=since, track=track
    ).run()
