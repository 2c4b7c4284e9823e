"""What a method costs is found from some of its steps."""

from __future__ import annotations

import copy

import pytest
import torch
from bench.methods import NAMES, measure_method, spread

from bench import methods, workloads
from unweave.engine import Phase
from unweave.methods import METHODS, Method, find_method

CPU = torch.device("cpu")


class Clock:
    """Time that passes only when somebody works."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize("steps", [0, 1, 6, 7, 66, 1000])
def test_a_run_is_its_beginning_and_all_of_its_steps(steps, monkeypatch):
    clock, taken = Clock(), []
    monkeypatch.setattr(methods, "time", clock)

    class Slow(Phase):
        name = "slow"

        def prepare(self, bench):
            super().prepare(bench)
            self.steps = steps
            clock.now += 5

        def step(self, number):
            taken.append(number)
            clock.now += 2 + number % 2  # 2.5 s on average
            return {}

    class Made(Method):
        name = "slow"

        def phases(self):
            return [Slow()]

    row = measure_method(Made, workloads.digits(workers=0), CPU, compile="off")
    assert len(taken) == len(set(taken)) <= methods.FIRST + methods.TIMED
    assert row["phases"]["slow"]["timed_steps"] == len(taken) == min(steps, methods.FIRST + methods.TIMED)
    assert row["seconds"] == pytest.approx(5 + sum(2 + number % 2 for number in range(steps)), rel=0.25)
    if steps == len(taken):
        assert row["seconds"] == pytest.approx(5 + sum(2 + number % 2 for number in range(steps)))


def test_steps_are_spread_over_the_whole_phase():
    assert spread(6, 6, most=60) == []
    chosen = spread(6, 10_000, most=60)
    assert len(chosen) == 60
    assert chosen[0] == 6
    assert max(chosen) > 9_800


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_timed_with_its_own_settings_and_moves_nothing(name, monkeypatch):
    monkeypatch.setattr(methods, "TIMED", 2)
    workload = workloads.digits(workers=0)
    model = workload.ours()
    before = copy.deepcopy(model)
    kept = workloads.Workload(**{**vars(workload), "ours": lambda: model})
    row = measure_method(find_method(name), kept, CPU, compile="off")
    assert row["settings"] == workload.configured(find_method(name)).to_dict()
    assert all(phase["steps"] >= phase["timed_steps"] > 0 for phase in row["phases"].values())
    if name not in ("ssd", "unweave", "adaptive"):  # whose restoring steps have no step size
        for old, new in zip(before.parameters(), model.parameters(), strict=True):
            assert torch.allclose(old, new, atol=1e-6)


def test_the_printed_settings_are_taken_where_there_are_some():
    printed = {name: workloads.images(train=100, test=100).configured(METHODS[name]).to_dict() for name in NAMES}
    assert printed["scrub"]["learning_rate"] == 5e-5
    assert printed["retrain"]["epochs"] == 30
    assert printed["munba"]["learning_rate"] == 0.01
    assert printed["two-stage"]["momentum"] == 0.9
