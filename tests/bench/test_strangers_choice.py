"""Which methods the oracle tunes: the rule of docs/protocol.md."""

from __future__ import annotations

import json

from bench.strangers.catalogue import halves
from bench.strangers.choice import TASKS, candidates, chosen, ranking

from tests.helpers.places import ROOT


def trial(task, method, number, *, first, second, valid=True):
    row = {"task": task, "seed": 0, "method": method, "number": number, "valid": valid}
    return row | {f"{half} {name}": value for half, value in (("first", first), ("second", second)) for name in KEPT}


KEPT = ("adjacent", "remote")


def test_a_method_counts_with_its_best_valid_trial_chosen_on_the_first_half():
    rows = [
        trial("x", "a", 0, first=0.9, second=0.7),
        trial("x", "a", 1, first=0.8, second=0.9),
        trial("x", "b", 0, first=1.0, second=1.0, valid=False),
        trial("x", "b", 1, first=0.5, second=0.6),
    ]
    found = ranking(rows)
    assert list(found) == ["a", "b"]
    assert [round(about["regret"], 6) for about in found.values()] == [0, 10]


def test_without_a_valid_trial_the_accuracy_counts_as_0_and_a_task_that_nobody_solves_does_not_count():
    rows = [
        trial("x", "a", 0, first=0.8, second=0.8),
        trial("x", "b", 0, first=0.9, second=0.9, valid=False),
        *(trial("y", method, 0, first=0.9, second=0.9, valid=False) for method in "ab"),
    ]
    assert ranking(rows) == {
        "a": {"regret": 0.0, "valid": 1, "tasks": 1},
        "b": {"regret": 80.0, "valid": 0, "tasks": 1},
    }


def test_trials_of_a_round_that_not_every_method_has_been_through_do_not_count():
    rows = [trial("x", method, 0, first=0.5, second=0.5) for method in "ab"]
    rows.append(trial("x", "a", 1, first=0.9, second=0.9))
    assert {about["regret"] for about in ranking(rows).values()} == {0.0}


def test_four_are_chosen_and_of_equal_ones_the_first_in_the_alphabet():
    rows = [trial("x", method, 0, first=0.5, second=0.5) for method in "edcba"]
    assert chosen(rows) == ("a", "b", "c", "d")


def test_the_tasks_are_of_development_and_took_less_than_ten_seconds():
    lines = (ROOT / "results" / "strangers" / "development.jsonl").read_text(encoding="utf-8").splitlines()
    cheap = {row["task"] for row in map(json.loads, lines) if row["cpu_seconds"] < 10}
    assert set(TASKS) == cheap
    assert {halves()[name] for name in TASKS} == {"development"}


def test_candidates_can_be_tuned_and_do_not_train_anew():
    assert {"adaptive", "unweave", "two-stage", "scrub", "ssd"} < set(candidates())
    assert not {"retrain", "original", "npo"} & set(candidates())
