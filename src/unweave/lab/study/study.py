"""Run the cells of a study, in one process or several."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from unweave._version import __version__
from unweave.api import Result, Split, unlearn
from unweave.engine import Compute, Note, Progress, ScoreOn, StopWhen, Track, Watch
from unweave.engine.compiling import Compile
from unweave.errors import Stopped, UsageError, unknown
from unweave.evaluation import Look
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.lab.packages import require_package
from unweave.lab.protocol import PROTOCOL
from unweave.lab.study.adjacency import regroup
from unweave.lab.study.cell_progress import CellProgress
from unweave.lab.study.cells import Cell, as_settings, in_running_order, profile_of
from unweave.lab.study.comparisons import Comparisons, Keep
from unweave.lab.study.originals import NotYet, Originals, take_originals, tidy_models
from unweave.lab.study.store import Store, describe
from unweave.lab.study.study_answers import Answering
from unweave.methods import make_method
from unweave.runs import LAST_GOOD, remove_folder, unfinished
from unweave.runtime import Precision
from unweave.settings import Settings
from unweave.storage import Lock, provenance

PATIENCE = 0.3  # seconds between two checks of what other processes have done


def run_study(
    benchmark: Benchmark,
    cells: Sequence[Cell],
    out: Path,
    *,
    device: str | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    keep: Keep = "all",
    time_limit: float | None = None,
    track: Sequence[str] = (),
    originals: Path | None = None,
    progress: Callable[[Store], CellProgress] | None = None,
) -> Store:
    """Run every cell that is not done, then write the table. Call it again to resume.

    Several processes may share a folder: a cell belongs to the process that claims it first. If a process dies, the
    next start resumes its cell from the checkpoint. ``device``, ``precision`` and ``compile`` are those of `unlearn`
    and apply to all training. ``presets`` are recorded in the folder, for the report. ``keep`` says whose weights stay
    when they are no longer needed. After ``time_limit`` seconds no cell starts, and the running one stops at a
    checkpoint. ``track`` names trackers that get the cells' histories. ``originals`` is the folder of another study
    whose trained originals are used. ``progress`` makes the display of the progress.
    """
    computing = Compute(device=device, precision=precision, compile=compile)
    store = begin_study(
        benchmark, cells, out, computing=computing, presets=presets, keep=keep, track=track, originals=originals
    )
    deadline = None if time_limit is None else time.monotonic() + time_limit
    shown = progress(store) if progress else None
    runner = CellRunner(
        benchmark, cells, store, computing=computing, keep=keep, deadline=deadline, track=track, progress=shown
    )
    with runner.progress:
        runner.run()
    end_study(store)
    return store


def begin_study(
    benchmark: Benchmark,
    cells: Sequence[Cell],
    out: Path,
    *,
    computing: Compute,
    presets: Mapping[str, Mapping[str, Any]] | None,
    keep: str,
    track: Sequence[str],
    originals: Path | None = None,
    workers: int = 1,
) -> Store:
    """Create or open the folder, and record what was requested and where it runs."""
    require_package("pyarrow", "A study's table")  # which is written at the end
    Track(*track).check()
    device = computing.check()
    if keep not in get_args(Keep):
        raise unknown("choice of models to keep", keep, get_args(Keep))
    if originals:
        Store.open(originals)  # raises an error for another folder, before ``out`` is created
    store = Store.create(out, benchmark.name, options=benchmark.options)
    store.adopt(cells)
    store.tidy()
    tidy_models(store)
    for cell in {(cell.method, cell.profile, cell.variant): cell for cell in cells}.values():
        store.check_settings(cell, _settings(benchmark, cell).to_dict())
    taken = take_originals(benchmark, store, originals, {cell.seed for cell in cells}) if originals else None
    store.add_presets(presets or {})
    if not all(store.is_done(cell) for cell in cells):
        with Lock(store.locks / "provenance.lock", wait=True):
            where = provenance(device)
            said = {**where, "protocol": PROTOCOL.version, "workers": workers}
            store.write_provenance({**said, **({"originals": taken} if taken else {})})
    return store


def _settings(benchmark: Benchmark, cell: Cell) -> Settings:
    """Return all settings of a cell on the benchmark."""
    method = benchmark.method(cell.method)
    return method.configure(as_settings(cell, benchmark.settings_for(method, cell.profile)), profile=cell.profile)


def end_study(store: Store) -> None:
    """Write the table."""
    with Lock(store.locks / "table.lock", wait=True):
        store.write_table()


class CellRunner:
    """Runs cells in one process. They share the data, the originals and the predictions of models."""

    def __init__(
        self,
        benchmark: Benchmark,
        cells: Sequence[Cell],
        store: Store,
        *,
        computing: Compute,
        keep: str = "all",
        deadline: float | None = None,
        since: float | None = None,
        track: Sequence[str] = (),
        progress: CellProgress | None = None,
    ) -> None:
        self.benchmark, self.cells, self.store, self.computing = benchmark, in_running_order(cells), store, computing
        self.deadline, self.track = deadline, track
        self.since = time.time() if since is None else since  # older failures are tried again
        self.progress = progress or CellProgress(store, cells)
        self.task = cache(self._task)
        self.look = cache(self._look)
        self.originals = Originals(benchmark, store, self.task, self.progress, computing=computing, stop=self.is_over)
        self.answering = Answering(benchmark, store, self.task, computing=computing)
        self.comparisons = Comparisons(
            benchmark,
            store,
            self.cells,
            self.originals,
            self.look,
            self.progress,
            self.answering,
            keep=keep,
            since=self.since,
        )

    def run(self) -> None:
        """Run cells until all are settled, here or in another process, or the time is up; then compare."""
        waiting = [cell for cell in self.cells if not self.store.is_settled(cell, since=self.since)]
        while waiting and not self.is_over():
            before = len(waiting)
            waiting = [cell for cell in waiting if self.is_over() or not self._attempt(cell)]
            if len(waiting) == before and waiting:
                time.sleep(PATIENCE)
        for name in self.store.finished():
            if not self.is_over():
                self.comparisons.compare(name)
        if not waiting and not self.is_over():
            self.comparisons.end()

    def is_over(self) -> bool:
        """Return whether the time limit is reached."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _attempt(self, cell: Cell) -> bool:
        """Run a cell, unless another process runs it or trains its original; return whether it is settled."""
        if self.store.is_settled(cell, since=self.since):
            return True
        with Lock.claim(self.store.locks / f"cell.{cell.name}.lock") as claim:
            if claim is None:
                return False
            if self.store.is_settled(cell, since=self.since):
                return True
            if claim.died_since(self.since):  # it might crash this process too; the next start tries again
                return True
            with claim.working():
                try:
                    self._run(cell)
                except (NotYet, Stopped):
                    return False
        if self.comparisons.references_are_there():
            self.comparisons.compare(cell.name)
        return True

    def _run(self, cell: Cell) -> None:
        """Run one cell. A failure is recorded, and the study continues."""
        if self.store.put_in_place(cell):  # a process died before it moved the repeated run
            return
        original = self.originals(cell.seed)
        task, begun = self.task(), time.monotonic()
        self.progress.begin(cell.name)
        try:
            split = regroup(
                task.train, cell.adjacency, original=lambda: original, seed=cell.seed, device=self.computing.device
            )
            result = self._unlearned(cell, original, split)
        except Stopped:
            raise
        except (RuntimeError, ValueError) as error:  # ours and torch's, such as out of memory
            self.store.note_failure(cell, error)
            work = unfinished(self.store.run_folder(cell))
            if isinstance(error, UsageError) and (work / LAST_GOOD).exists():  # resuming would fail again
                remove_folder(work)
            self.progress.end(cell.name, failed=True)
            return
        self.store.forget_failure(cell)
        self.store.put_in_place(cell)
        self.store.note_time(cell.name, time.monotonic() - begun)
        self.answering.ask(cell.name, result.model)
        if result.scores and result.scores.observed:
            self.comparisons.remember(cell.name, result.scores.observed)
        self.progress.end(cell.name)

    def _unlearned(self, cell: Cell, original: nn.Module, split: Split) -> Result:
        """Resume the cell's run, or start it. One that began with other arguments, such as ``watch``, starts anew."""
        work = unfinished(self.store.run_folder(cell))
        if not work.exists():
            return self._unlearn(cell, original, split, resume=False)
        try:
            return self._unlearn(cell, original, split, resume=True)
        except UsageError as error:
            self.progress.say(f"{cell.name} starts again because it cannot resume: {error}")
            if work.exists():
                lock = Lock(work / "lock")  # which refuses, should anybody else be at work there
                remove_folder(work)
                lock.release()
            return self._unlearn(cell, original, split, resume=False)

    def _unlearn(self, cell: Cell, original: nn.Module, split: Split, *, resume: bool) -> Result:
        method, task = self.benchmark.method(cell.method), self.task()
        settings = as_settings(cell, self.benchmark.settings_for(method, cell.profile))
        chosen = make_method(method, settings, profile=cell.profile).with_given(
            initial=lambda: self.benchmark.initial(cell.seed),
            reference=lambda: self.benchmark.train_briefly(original, split, seed=cell.seed, **self.computing.working),
            **self.benchmark.given(task),
        )
        about = {
            "profile": cell.profile or next(iter(method.profiles)),
            **self.benchmark.about(task),
            "unweave": __version__,
            "torch": torch.__version__,
            "cell": describe(cell, profile_of(cell)),
        }
        return unlearn(
            original,
            split,
            chosen,
            seed=cell.seed,
            out=self.store.run_folder(cell),
            resume=resume,
            test=task.test,
            compute=self.computing,
            guard=None,  # a comparison shows a collapse instead of stopping
            callbacks=[
                Progress(self.progress.bar),
                *([Watch()] if cell.watch else []),
                ScoreOn(task.train, look=self.look()),
                StopWhen(self.is_over),
                Track(*self.track, folder=self.store.folder / "tracking"),
                Note(**about),
            ],
        )

    def _task(self) -> BenchmarkTask:
        return self.benchmark.load()

    def _look(self) -> Look:
        return Look(self.task().train, self.task().test, **self.computing.looking)
