"""Tune methods on a benchmark, in one process or several."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from unweave.benchmarks import Benchmark
from unweave.data import pick_device
from unweave.errors import RunError, Stopped, UsageError
from unweave.evaluation.predictions import observe
from unweave.evaluation.reference import RETAINED
from unweave.methods import find_method
from unweave.provenance import provenance
from unweave.run import unlearn
from unweave.split import SUBSETS
from unweave.study.originals import NotYet, Originals
from unweave.study.processes import dead, started, still_running
from unweave.study.study import PATIENCE
from unweave.tuning.folder import Folder
from unweave.tuning.held_out import carve
from unweave.tuning.objectives import GOALS, RETRAINED, Answers, accuracies, check_goal
from unweave.tuning.progress import Progress
from unweave.tuning.searches import MethodSearch, Tried, open_storage, require_optuna
from unweave.tuning.space import Space, tuned_methods

SEED = 100  # none of those that results are reported for


def tune(
    source: Callable[[], Benchmark],
    out: Path,
    *,
    methods: Sequence[str] = ("all",),
    trials: int = 20,
    goal: str = "erase",
    seed: int = SEED,
    workers: int = 1,
    device: str | None = None,
    time_limit: float | None = None,
    write: Callable[[str], None] | None = None,
) -> Tuning:
    """Try as many settings of each method, judge them by the goal on held-out training data, and keep the best.

    Call it again to go on where it stopped, or with more ``trials`` to go on beyond. ``source`` makes the benchmark;
    with several ``workers`` it must be a function that can be pickled, such as ``partial(find_benchmark, "digits")``,
    and so must ``write``, which gets a line for every trial. The trials of a method are run one after the other, so
    the outcome does not depend on the number of workers (but for rounding, where they have fewer threads each). After
    ``time_limit`` seconds no trial is begun.
    """
    check_goal(goal)
    if trials < 1:
        raise UsageError(f"Each method needs at least one trial, not {trials}.")
    names = tuned_methods(methods)
    tuning = Tuning(source(), out, names, trials=trials, goal=goal, seed=seed)
    if tuning.left():
        tuning.folder.add_provenance(provenance(pick_device(device)))
    since = time.time()
    more: dict[str, Any] = {"device": device, "time_limit": time_limit, "since": since, "write": write}
    failed = ""
    try:
        if workers == 1:
            Work(tuning, live=write is not None, **more).run()
        else:
            about = {"trials": trials, "goal": goal, "seed": seed}
            with started(_work, source, out, names, about, workers=workers, **more) as processes:
                while still_running(processes):
                    pass
            failed = dead(processes)
    finally:
        tuning.write()
    if failed:
        raise RunError(f"{failed} ended before the work was done; what was done is kept. The same command goes on.")
    return tuning


class Tuning:
    """What is tuned, and how far it is."""

    def __init__(
        self, benchmark: Benchmark, out: Path, methods: Sequence[str], *, trials: int, goal: str, seed: int
    ) -> None:
        self.benchmark, self.trials, self.goal, self.seed = benchmark, trials, goal, seed
        require_optuna()
        self.folder = Folder(out, benchmark, goal=goal, seed=seed)
        with self.folder.locks.wait_for("storage"):
            self.storage = open_storage(self.folder.storage)
            self.searches = {name: self._search(name) for name in methods}
        self.best: dict[str, Any] | None = None

    def _search(self, name: str) -> MethodSearch:
        return MethodSearch(self.storage, Space.of(self.benchmark, name, goal=self.goal), seed=self.seed)

    def left(self) -> dict[str, int]:
        """Return how many trials are to be run of each method that is not done, least advanced first."""
        found = {name: self.trials - len(search.tried()) for name, search in self.searches.items()}
        return {name: count for name, count in sorted(found.items(), key=lambda item: -item[1]) if count > 0}

    def write(self) -> None:
        """Write the tables of all methods in the folder, also of those that an earlier start tuned."""
        names = sorted(require_optuna().get_all_study_names(self.storage))
        every = {name: (self.searches.get(name) or self._search(name)).tried() for name in names}
        self.best = self.folder.write(every)


class Work:
    """What one process does: trials, and what they share: the held-out data, the original, the retrained model."""

    def __init__(
        self,
        tuning: Tuning,
        *,
        device: str | None,
        time_limit: float | None,
        since: float,
        write: Callable[[str], None] | None,
        live: bool = False,
    ) -> None:
        self.tuning, self.device, self.since = tuning, device, since
        self.end = None if time_limit is None else since + time_limit
        self.progress = Progress(tuning, write=write, live=live)
        self.task = cache(lambda: carve(tuning.benchmark.load(), seed=tuning.seed))
        self.original = cache(lambda: self._trained("original", SUBSETS))
        self.retrained = cache(self._retrained)
        self.left_out: set[str] = set()

    def run(self) -> None:
        """Run trials, always of the method that has had the fewest, until all are done or time is over."""
        with self.progress:
            while not self.is_over():
                names = [name for name in self.tuning.left() if name not in self.left_out]
                if not names:
                    return
                try:
                    if not any(self._attempt(name) for name in names):
                        time.sleep(PATIENCE)  # others are at what is left
                except Stopped:
                    return

    def is_over(self) -> bool:
        """Tell whether the time limit is reached."""
        return self.end is not None and time.time() >= self.end

    def _attempt(self, name: str) -> bool:
        """Run the next trial of a method, unless another process is at it; tell whether it was run."""
        search = self.tuning.searches[name]
        with self.tuning.folder.locks.claim(f"method.{name}") as claim:
            if claim is None or len(search.tried()) >= self.tuning.trials:
                return False
            if claim.died_since(self.since):  # it might take this process down too: the next start tries again
                self.left_out.add(name)
                return False
            original, retrained = self.original(), self.retrained()
            if self.is_over():
                return False
            with claim.working():
                trial, tried = search.ask()
                self.progress.begin(tried)
                tried = self._judged(tried, original, retrained)
                search.tell(trial, tried)
        self.progress.end(tried)
        return True

    def _judged(self, tried: Tried, original: nn.Module, retrained: Answers) -> Tried:
        """Run a trial and judge it on the held-out data."""
        tuning, task, begun = self.tuning, self.task(), time.perf_counter()
        try:
            result = unlearn(
                original,
                task.train,
                find_method(tried.method),
                seed=tuning.seed,
                initial=lambda: tuning.benchmark.initial(tuning.seed),
                device=self.device,
                progress=self.progress.bar,
                limits=None,  # a collapse has the score that it deserves
                **tried.settings,
            )
            found = self._answers(result.model)
        except RunError as error:
            seconds = round(time.perf_counter() - begun, 3)
            return dataclasses.replace(tried, seconds=seconds, error=" ".join(str(error).split()))
        return dataclasses.replace(
            tried,
            score=GOALS[tuning.goal](found, retrained),
            accuracy=accuracies(found),
            seconds=round(time.perf_counter() - begun, 3),
            sample_gradients=result.cost.sample_gradients,
        )

    def _answers(self, model: nn.Module) -> Answers:
        return observe(model, self.task().test, device=self.device).parts["train"]

    def _retrained(self) -> Answers:
        if self.tuning.goal not in RETRAINED:
            return {}
        return self._answers(self._trained("retrained", RETAINED))

    def _trained(self, kind: str, subsets: tuple[str, ...]) -> nn.Module:
        tuning = self.tuning
        models = Originals(
            tuning.benchmark,
            tuning.folder,
            self.task,
            self.progress,
            device=self.device,
            stop=self.is_over,
            kind=kind,
            subsets=subsets,
        )
        while True:
            try:
                return models(tuning.seed)
            except NotYet:
                if self.is_over():
                    raise Stopped("The time limit is reached.") from None
                time.sleep(PATIENCE)


def _work(source: Callable[[], Benchmark], out: Path, names: Sequence[str], about: dict[str, Any], **more: Any) -> None:
    """Be a worker."""
    Work(Tuning(source(), out, names, **about), **more).run()
