"""Tune methods on a benchmark, in one process or several."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api import Result, unlearn
from unweave.data import RETAINED, SUBSETS
from unweave.engine import Compute, Progress
from unweave.engine.compiling import Compile
from unweave.errors import RunError, Stopped, UsageError
from unweave.evaluation import observe
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.lab.protocol import PROTOCOL
from unweave.lab.study import PATIENCE, NotYet, Originals, dead, started, still_running, tidy_models
from unweave.lab.tuning.held_out import carve
from unweave.lab.tuning.objectives import GOALS, WORST, Answers, accuracies, check_goal
from unweave.lab.tuning.search_space import Space, tuned_methods
from unweave.lab.tuning.searches import MethodSearch, Tried, open_storage, readable, require_optuna
from unweave.lab.tuning.trial_progress import TrialProgress
from unweave.lab.tuning.tuning_folder import Folder
from unweave.methods import make_method
from unweave.runtime import Precision
from unweave.storage import Lock, provenance

SEED = 100  # no seed that results are reported for
TRAINED_ON = {"original": SUBSETS, "retrained": RETAINED}
BEHIND = 0.05  # stop a trial whose score trails the best by this much after some of the seeds


def tune(
    source: Callable[[], Benchmark],
    out: Path,
    *,
    methods: Sequence[str] = ("all",),
    trials: int = 20,
    goal: str = "erase",
    seed: int = SEED,
    seeds: int = 1,
    workers: int = 1,
    cluster: str | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
    time_limit: float | None = None,
    write: Callable[[str], None] | None = None,
) -> Tuning:
    """Try the same number of settings for each method, judge them on held-out training data, and keep the best.

    With several ``seeds``, counted from ``seed``, a trial runs once for each. Every seed has its own held-out data and
    its own original, and the mean score counts. A trial that clearly trails its method's best after some of the seeds
    stops: its score is the best's, less the gap.

    Call it again to resume, or with more ``trials`` to continue. ``source`` makes the benchmark. With several
    ``workers`` it must be picklable, such as ``partial(find_benchmark, "digits")``, and so must ``write``, which gets a
    line for every trial. Trials that learn from others run after them, so the outcome does not depend on the number of
    workers, except for rounding where they have fewer threads each. ``device``, ``precision`` and ``compile`` are those
    of `unlearn`. ``cluster`` is the address of a Ray cluster to run on. After ``time_limit`` seconds no trial starts.
    """
    check_goal(goal)
    if min(trials, seeds) < 1:
        raise UsageError(f"Each method needs at least one trial and one seed, not {trials} and {seeds}.")
    computing = Compute(device=device, precision=precision, compile=compile)
    where = computing.check()
    asked: dict[str, Any] = {"trials": trials, "goal": goal, "seed": seed, "seeds": seeds}
    benchmark = source()
    names = tuned_methods(methods, tokens=benchmark.has_tokens)
    tuning = Tuning(benchmark, out, names, **asked)
    if tuning.left():
        tuning.folder.add_provenance({**provenance(where), "protocol": PROTOCOL.version})
    since = time.time()
    more: dict[str, Any] = {"computing": computing, "time_limit": time_limit, "since": since, "write": write}
    failed = ""
    try:
        if workers == 1 and cluster is None:
            TrialRunner(tuning, live=write is not None, **more).run()
        else:
            with started(
                _work, source, out.resolve(), names, asked, workers=workers, cluster=cluster, **more
            ) as processes:
                while still_running(processes):
                    pass
                failed = dead(processes)
    finally:
        tuning.write()
    if failed:
        raise RunError(f"{failed} ended before the work was done. Finished trials are kept. The same command resumes.")
    return tuning


class Tuning:
    """The searches of all methods, and the folder that keeps them."""

    def __init__(
        self,
        benchmark: Benchmark,
        out: Path,
        methods: Sequence[str],
        *,
        trials: int,
        goal: str,
        seed: int = SEED,
        seeds: int = 1,
    ) -> None:
        self.benchmark, self.trials, self.goal, self.seed = benchmark, trials, goal, seed
        self.seeds = range(seed, seed + seeds)
        require_optuna()
        self.folder = Folder(out, benchmark, goal=goal, seed=seed, seeds=seeds)
        tidy_models(self.folder)
        with readable(self.folder.storage), Lock(self.folder.locks / "storage.lock", wait=True):
            self.storage = open_storage(self.folder.storage)
            self.searches = {name: self._search(name) for name in methods}
            for search in self.searches.values():
                search.tried()
        self.best: dict[str, Any] | None = None

    def _search(self, name: str) -> MethodSearch:
        return MethodSearch(self.storage, Space.of(self.benchmark, name, goal=self.goal), seed=self.seed)

    def left(self) -> dict[str, int]:
        """Return how many trials are left for each unfinished method, the largest number first."""
        found = {name: self.trials - len(search.tried()) for name, search in self.searches.items()}
        return {name: count for name, count in sorted(found.items(), key=lambda item: -item[1]) if count > 0}

    def ready(self) -> list[tuple[int, str]]:
        """Return number and method of the trials that can run now, the lowest numbers first.

        With one seed, a method's random trials can run side by side: they are independent. With several seeds, a trial
        may stop early, which depends on the best one before it.
        """
        at_once = len(self.seeds) == 1
        found = {name: search.ready(self.trials, at_once=at_once) for name, search in self.searches.items()}
        return sorted(((number, name) for name, numbers in found.items() for number in numbers), key=lambda one: one[0])

    def write(self) -> None:
        """Write the tables of all methods in the folder, including those of earlier starts."""
        with readable(self.folder.storage):
            names = sorted(require_optuna().get_all_study_names(self.storage))
            every = {name: (self.searches.get(name) or self._search(name)).tried() for name in names}
        self.best = self.folder.write(every)

    def write_best_of_first(self, place: Path) -> int:
        """Write what is best so far to another folder: each method gets as many trials as all of them have finished.

        A tuning that is out of time can be used so, with equal budgets. Returns the number of trials of each method; 0
        if one has none, and then nothing is written.
        """
        with readable(self.folder.storage):
            return self.folder.write_best_of_first(
                {name: search.tried() for name, search in self.searches.items()}, place
            )


@dataclass(frozen=True)
class Base:
    """What all trials of a seed share: the held-out data, the original, and the predictions to compare with.

    Methods that need a reference share one. The cost of its training counts for every trial.
    """

    seed: int
    task: BenchmarkTask
    original: nn.Module
    beside: Answers
    reference: Callable[[], Result]


class TrialRunner:
    """Runs trials in one process. They share the held-out data and the trained models of each seed."""

    def __init__(
        self,
        tuning: Tuning,
        *,
        computing: Compute,
        time_limit: float | None,
        since: float,
        write: Callable[[str], None] | None,
        live: bool = False,
    ) -> None:
        self.tuning, self.computing, self.since = tuning, computing, since
        self.end = None if time_limit is None else since + time_limit
        self.progress = TrialProgress(tuning, write=write, live=live)
        self.whole = cache(tuning.benchmark.load)
        self.bases = cache(lambda: [self._base(seed) for seed in tuning.seeds])
        self.left_out: set[tuple[int, str]] = set()

    def run(self) -> None:
        """Run trials, those of the method with the fewest first, until all are done or the time is up."""
        with self.progress:
            while not self.is_over():
                ready = [trial for trial in self.tuning.ready() if trial not in self.left_out]
                if not ready:
                    return
                try:
                    if not any(self._attempt(*trial) for trial in ready):
                        time.sleep(PATIENCE)  # other processes run what is left
                except Stopped:
                    return

    def is_over(self) -> bool:
        """Return whether the time limit is reached."""
        return self.end is not None and time.time() >= self.end

    def _attempt(self, number: int, name: str) -> bool:
        """Run a trial of a method, unless another process runs it; return whether it was run."""
        search = self.tuning.searches[name]
        with Lock.claim(self.tuning.folder.locks / f"trial.{name}.{number}.lock") as claim:
            if claim is None or number in {tried.trial for tried in search.tried()}:
                return False
            if claim.died_since(self.since):  # it might crash this process too; the next start tries again
                self.left_out.add((number, name))
                return False
            bases = self.bases()
            if self.is_over():
                return False
            with claim.working():
                drawn, tried = search.ask(number)
                self.progress.begin(tried)
                tried = self._judged(tried, bases, rival=search.rival(tried))
                search.tell(drawn, tried)
        self.progress.end(tried)
        return True

    def _judged(self, tried: Tried, bases: Sequence[Base], *, rival: Tried | None) -> Tried:
        """Run a trial with every seed, judge it on that seed's held-out data, and return it with the means."""
        begun = time.perf_counter()
        every: list[dict[str, float]] = []
        scores: list[float] = []
        gradients, ahead = 0, 0.0
        try:
            for base in bases:
                result = self._unlearned(tried, base)
                gradients += result.cost.sample_gradients
                answers = self._answers(result.model, base.task)
                every.append(accuracies(answers))
                scores.append(GOALS[self.tuning.goal].score(answers, base.beside))
                ahead = statistics.fmean(rival.scores[: len(scores)]) - statistics.fmean(scores) if rival else 0.0
                if ahead > BEHIND:
                    break
        except (RuntimeError, ValueError) as error:  # ours and torch's, such as out of memory
            seconds = round(time.perf_counter() - begun, 3)
            return dataclasses.replace(tried, seconds=seconds, error=" ".join(str(error).split()))
        cut_short = len(scores) < len(bases)  # its mean is not comparable: seeds differ in what can be reached
        return dataclasses.replace(
            tried,
            score=max(WORST, rival.score - ahead) if rival and cut_short else statistics.fmean(scores),
            scores=scores,
            accuracy={subset: statistics.fmean(one[subset] for one in every) for subset in SUBSETS},
            seconds=round(time.perf_counter() - begun, 3),
            sample_gradients=gradients,
        )

    def _unlearned(self, tried: Tried, base: Base) -> Result:
        chosen = make_method(tried.method, tried.settings).with_given(
            initial=lambda: self.tuning.benchmark.initial(base.seed),
            reference=base.reference,
            **self.tuning.benchmark.given(base.task),
        )
        return unlearn(
            base.original,
            base.task.train,
            chosen,
            seed=base.seed,
            compute=self.computing,
            guard=None,  # a collapse gets its low score instead of stopping
            callbacks=[Progress(self.progress.bar)],
        )

    def _answers(self, model: nn.Module, task: BenchmarkTask) -> Answers:
        assert task.test is not None  # `carve` made it
        return observe(model, task.test, **self.computing.looking).parts["train"]

    def _base(self, seed: int) -> Base:
        task, beside = (
            carve(self.whole(), seed=seed, texts=self.tuning.benchmark.has_tokens),
            GOALS[self.tuning.goal].beside,
        )
        models = {kind: self._trained(kind, task, seed) for kind in dict.fromkeys((beside, "original"))}
        original, train = models["original"], self.tuning.benchmark.train_briefly
        reference = cache(lambda: train(original, task.train, seed=seed, **self.computing.working))
        return Base(seed, task, original, self._answers(models[beside], task), reference)

    def _trained(self, kind: str, task: BenchmarkTask, seed: int) -> nn.Module:
        tuning = self.tuning
        models = Originals(
            tuning.benchmark,
            tuning.folder,
            lambda: task,
            self.progress,
            computing=self.computing,
            stop=self.is_over,
            kind=kind,
            subsets=TRAINED_ON[kind],
        )
        while True:
            try:
                return models(seed)
            except NotYet:
                if self.is_over():
                    raise Stopped("The time limit is reached.") from None
                time.sleep(PATIENCE)


def _work(source: Callable[[], Benchmark], out: Path, names: Sequence[str], about: dict[str, Any], **more: Any) -> None:
    """Run trials in a worker process."""
    TrialRunner(Tuning(source(), out, names, **about), **more).run()
