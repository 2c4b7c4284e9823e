"""The order of an oracle's jobs: models first, then defaults, whole rounds of trials, and the best on other seeds."""

from __future__ import annotations

import itertools

from bench.strangers.schedule import Job, Schedule

METHODS = ("a", "b")
FOREVER = 1e9


def schedule(trials=3, monkeypatch=None, **more):
    return Schedule(("x", "y"), (0, 1), METHODS, trials, **more)


def row_of(job, *, seconds=1.0, accuracy=0.5, valid=True):
    row = {"task": job.task, "seed": job.seed, "method": job.method, "number": job.number, "settings": job.settings}
    return row | {"seconds": seconds, "valid": valid, "first adjacent": accuracy, "first remote": accuracy}


def run_all(plan, *, jobs=1, left=FOREVER, result=row_of):
    """Run everything at once, some jobs side by side; return the jobs in the order of their beginning."""
    begun, running = [], []
    while True:
        while len(running) < jobs and (job := plan.next(left=left, jobs=jobs)):
            begun.append(job)
            running.append(job)
        if not running:
            return begun
        job = running.pop(0)
        plan.ended(job, None if job.trains else result(job))


def drawn(monkeypatch):
    monkeypatch.setattr("bench.strangers.schedule.drawn", lambda method, number: {"n": number} if number else {})


def test_models_come_first_then_defaults_then_rounds_then_the_best_on_the_other_seed(monkeypatch):
    drawn(monkeypatch)
    begun = run_all(schedule(), result=lambda job: row_of(job, accuracy=job.number * (job.method == "b")))
    kinds = [
        "train" if job.trains else "default" if job.method is None else "trial" if job.seed == 0 else "best"
        for job in begun
    ]
    assert [(kind, len(list(some))) for kind, some in itertools.groupby(kinds)] == [
        ("train", 4),
        ("default", 4),
        ("trial", 12),
        ("best", 2),
    ]
    assert [job.number for job in begun if job.method and job.seed == 0] == sorted([*range(3)] * 4)
    assert [(job.task, job.method, job.number, job.settings) for job in begun[-2:]] == [
        (task, "b", 2, {"n": 2}) for task in "xy"
    ]


def test_nothing_begins_before_its_models_are_there(monkeypatch):
    drawn(monkeypatch)
    plan = schedule()
    first = [plan.next(left=FOREVER, jobs=8) for _ in range(5)]
    assert [job.trains for job in first if job] == [True] * 4
    assert first[4] is None
    plan.ended(Job("y", 0), None)
    assert plan.next(left=FOREVER, jobs=8) == Job("y", 0, None, 0)
    assert plan.next(left=FOREVER, jobs=8).task == "y"


def test_every_trial_runs_once_whatever_the_number_of_processes(monkeypatch):
    drawn(monkeypatch)
    for jobs in (1, 3, 7):
        begun = run_all(schedule(), jobs=jobs)
        assert len(begun) == len(set(begun)) == 4 + 4 + 12 + 2


def test_what_took_longest_begins_first_in_the_next_round(monkeypatch):
    drawn(monkeypatch)
    costs = {("x", "a"): 1.0, ("x", "b"): 9.0, ("y", "a"): 5.0, ("y", "b"): 2.0}
    begun = run_all(schedule(), result=lambda job: row_of(job, seconds=costs.get((job.task, job.method), 0.0)))
    second = [(job.task, job.method) for job in begun if job.method and job.number == 1 and job.seed == 0]
    assert second == sorted(costs, key=lambda pair: -costs[pair])


def test_when_time_is_short_no_trial_begins_and_the_best_of_whole_rounds_is_run(monkeypatch):
    drawn(monkeypatch)
    plan = schedule(trials=30)
    while len(plan.rows) < 4 + 4 + 4 + 1:  # defaults, two rounds, one trial of the third
        job = plan.next(left=FOREVER, jobs=1)
        accuracy = 0.9 if job.number == 2 else 0.1 * job.number
        plan.ended(job, None if job.trains else row_of(job, accuracy=accuracy))
    assert plan.needed(1) == 2 * 1.0 + 1.0
    last = run_all(plan, left=1.0)
    assert [(job.seed, job.number) for job in last] == [(1, 1), (1, 1)], "the third round is not whole"


def test_a_trial_that_still_runs_may_complete_a_round_so_its_task_waits(monkeypatch):
    drawn(monkeypatch)
    plan = schedule(trials=1)
    begun = run_all(plan, left=FOREVER, result=lambda job: row_of(job, valid=job.method != "b"))
    assert begun
    plan = schedule(trials=1, known=[row for row in plan.rows.values() if (row["method"], row["task"]) != ("b", "x")])
    for seed in (0, 1):
        plan.trained |= {("x", seed), ("y", seed)}
    plan.training.clear()
    running = plan.next(left=FOREVER, jobs=2)
    assert (running.task, running.method) == ("x", "b")
    assert plan.next(left=0.0, jobs=2) is None, "y is complete with its best rows, x waits"
    plan.ended(running, row_of(running, accuracy=0.9))
    again = plan.next(left=0.0, jobs=2)
    assert (again.task, again.method, again.seed) == ("x", "b", 1)


def test_known_rows_are_not_run_again(monkeypatch):
    drawn(monkeypatch)
    plan = schedule()
    run_all(plan)
    assert all(job.trains for job in run_all(schedule(known=plan.rows.values())))


def test_choosing_methods_needs_no_defaults_and_no_other_seed(monkeypatch):
    drawn(monkeypatch)
    begun = run_all(schedule(judges=False))
    assert {job.seed for job in begun} == {0}
    assert [job for job in begun if job.method is None and not job.trains] == []
