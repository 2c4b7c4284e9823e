"""The page on strangers says what the committed rows say, and the rows are of the committed look."""

from __future__ import annotations

import json
import statistics

import pytest
from bench.strangers import page
from bench.strangers.looks import FILE
from bench.strangers.tasks import TASKS


@pytest.mark.parametrize("place", [page.PAGE, page.TRIED])
def test_the_pages_have_the_committed_numbers(place):
    text = place.read_text(encoding="utf-8")
    assert page.filled(text, place) == text


def test_no_task_of_the_judgement_half_was_tried():
    for name in (
        "development.jsonl",
        "two-stage.jsonl",
        "forecasts.jsonl",
        "unseen.jsonl",
        "oracle.jsonl",
        "tried.jsonl",
    ):
        assert {TASKS[row["task"]].half for row in page.read(name)} == {"development"}


def test_the_forecast_is_calibrated_on_ten_tasks_at_least():
    rows = page.read("forecasts.jsonl")
    assert len({row["task"] for row in rows}) >= 10
    errors = [abs(row["forecast"] - row["retrained"]) for row in rows]
    assert statistics.fmean(errors) < 0.1
    assert max(errors) < 0.3


def test_the_goal_retrain_comes_as_near_to_retrained_models_as_twice_their_own_distance():
    rows = [row for row in page.read("unseen.jsonl") if row["aim"] == "held-out data"]
    assert len(rows) == 9
    for row in rows:
        assert row["losses"] <= 2 * row["losses retrained"], row["task"]
        assert row["predictions"] <= 2 * row["predictions retrained"], row["task"]


def test_the_judgement_half_is_complete_and_of_one_look():
    rows = page.read("judgement.jsonl")
    half = {name for name, task in TASKS.items() if task.half == "judgement"}
    assert {(row["task"], row["seed"]) for row in rows} == {(name, seed) for name in half for seed in range(3)}
    assert len(rows) == 3 * len(half)
    (look,) = json.loads(FILE.read_text(encoding="utf-8"))["looks"]
    assert {row["commit"].removesuffix("+") for row in rows} == {look["commit"]}
    assert {(row["method"], *row["settings"]) for row in rows} == {(None,)}
