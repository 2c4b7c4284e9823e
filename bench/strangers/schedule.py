"""What to run next for the oracle of many tasks: models, defaults, trials by rounds, the best on the other seeds.

A round is one trial number of every method on every task. Trials that take longest go first in it. When the time left
is needed for the best trials, no further one begins. Only rounds that all methods of a task have been through count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.strangers.oracle import best_of, drawn, in_complete_rounds


@dataclass(frozen=True)
class Job:
    """Train the models of a cell (number −1), or run a method on it; no method means the default."""

    task: str
    seed: int
    method: str | None = None
    number: int = -1
    settings: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def trains(self) -> bool:
        """Whether this is the training of the original and the retrained model."""
        return self.number < 0

    @classmethod
    def of(cls, row: dict[str, Any]) -> Job:
        """Return the job that a row is the result of."""
        return cls(row["task"], row["seed"], row["method"], row["number"])


class Schedule:
    """Knows what has begun and what has ended, and says what to begin.

    Args:
        tasks: Their names.
        seeds: Trials are made on the first one.
        methods: The methods to tune.
        trials: Trials of each method, at most.
        known: Rows of an earlier start: they are not run again.
        judges: Whether defaults, and the best trial of each task, are run on every seed.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        seeds: Sequence[int],
        methods: Sequence[str],
        trials: int,
        *,
        known: Iterable[dict[str, Any]] = (),
        judges: bool = True,
    ) -> None:
        self.tasks, self.seeds, self.methods, self.trials, self.judges = tasks, seeds, methods, trials, judges
        self.rows: dict[Job, dict[str, Any]] = {}
        self.tried: dict[str, list[dict[str, Any]]] = {task: [] for task in tasks}
        self.longest: dict[tuple[str, str | None], float] = {}
        self.trained: set[tuple[str, int]] = set()
        self.running: set[Job] = set()
        for row in known:
            self._add(Job.of(row), row)
        self.training = [Job(task, seed) for seed in (seeds if judges else seeds[:1]) for task in tasks]
        self.defaults = self._new(Job(task, seed, None, 0) for seed in seeds for task in tasks) if judges else []
        self.round: list[Job] = []
        self.rounds = 0

    def next(self, *, left: float, jobs: int) -> Job | None:
        """Return the next job; None if nothing can begin now.

        Args:
            left: Seconds that are left.
            jobs: How many run at a time.
        """
        is_late = left < self.needed(jobs)
        while not self.round and self.rounds < self.trials and not is_late:
            self.round = self._new(self._round(self.rounds))
            self.rounds += 1
        for jobs_in_order in (self.training, self.defaults, [] if is_late else self.round):
            job = next((job for job in jobs_in_order if self._may_begin(job)), None)
            if job:
                jobs_in_order.remove(job)
                break
        else:
            job = next(iter(self._new(self._last(is_late))), None) if self.judges else None
        if job:
            self.running.add(job)
        return job

    def ended(self, job: Job, row: dict[str, Any] | None) -> None:
        """Note that a job has ended, with its row; None for training."""
        self.running.remove(job)
        if row is None:
            self.trained.add((job.task, job.seed))
        else:
            self._add(job, row)

    def needed(self, jobs: int) -> float:
        """Return about how many seconds the running trials and then the best ones take."""
        if not self.judges:
            return 0.0
        running = [self.longest.get((job.task, job.method), 0.0) for job in self.running]
        best: list[float] = [row.get("seconds", 0.0) for task in self.tasks if (row := self.best(task))]
        return (len(self.seeds) - 1) * sum(best) / jobs + max(best, default=0.0) + max(running, default=0.0)

    def best(self, task: str) -> dict[str, Any] | None:
        """Return the best trial of a task so far."""
        return best_of(in_complete_rounds(self.tried[task], self.methods))

    def _add(self, job: Job, row: dict[str, Any]) -> None:
        self.rows[job] = row
        pair = job.task, job.method
        self.longest[pair] = max(self.longest.get(pair, 0.0), row.get("seconds", 0.0))
        if job.method and job.seed == self.seeds[0]:
            self.tried[job.task].append(row)

    def _new(self, jobs: Iterable[Job]) -> list[Job]:
        return [job for job in jobs if job not in self.rows and job not in self.running]

    def _round(self, number: int) -> list[Job]:
        """Return the trials of a round, those first that took longest before; what is not known counts as longest."""
        pairs = [(task, method) for task in self.tasks for method in self.methods]
        pairs.sort(key=lambda pair: -self.longest.get(pair, math.inf))
        return [Job(task, self.seeds[0], method, number, drawn(method, number)) for task, method in pairs]

    def _last(self, is_late: bool) -> Iterator[Job]:
        """Yield the best trial on the other seeds, of tasks whose trials are over."""
        running = {job.task for job in self.running if job.method and job.seed == self.seeds[0]}
        for task in self.tasks:
            is_over = is_late or len(self.tried[task]) == self.trials * len(self.methods)
            if is_over and task not in running and (best := self.best(task)):
                yield from (Job(task, s, best["method"], best["number"], best["settings"]) for s in self.seeds[1:])

    def _may_begin(self, job: Job) -> bool:
        return job.trains or (job.task, job.seed) in self.trained
