"""The page on strangers says what the committed rows say, and the rows are of the committed look."""

from __future__ import annotations

import json
import statistics

import pytest
from bench.strangers import page
from bench.strangers.choice import chosen
from bench.strangers.looks import FILE
from bench.strangers.tasks import TASKS

from unweave.lab.protocol import PROTOCOL

CHOICE = "choice.jsonl"


@pytest.mark.parametrize("place", [page.PAGE, page.DEVELOPMENT, page.TRIED])
def test_the_pages_have_the_committed_numbers(place):
    text = place.read_text(encoding="utf-8")
    assert page.filled(text, place) == text


def test_no_task_of_the_judgement_half_was_tried():
    names = ("development.jsonl", "two-stage.jsonl", "forecasts.jsonl", "unseen.jsonl", "oracle.jsonl", "tried.jsonl")
    for name in (*names, "settings.jsonl", "erase.jsonl", CHOICE):
        if name == CHOICE and not (page.RESULTS / name).exists():
            continue
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
    require_look(page.read("judgement.jsonl"), 0)


@pytest.mark.skipif(not (page.RESULTS / "judged.jsonl").exists(), reason="the second look is not used yet")
def test_the_second_look_is_complete_and_the_methods_of_its_oracle_were_chosen_by_the_rule():
    rows = page.read("judged.jsonl")
    require_look([row for row in rows if row["method"] is None], 1)
    assert {row["method"] for row in rows if row["method"]} == set(chosen(page.read(CHOICE)))


def require_look(rows, number):
    """Assert that the runs of the defaults are one look at the whole half."""
    half = {name for name, task in TASKS.items() if task.half == "judgement"}
    assert {(row["task"], row["seed"]) for row in rows} == {(name, seed) for name in half for seed in range(3)}
    assert len(rows) == 3 * len(half)
    look = json.loads(FILE.read_text(encoding="utf-8"))["looks"][number]
    assert {row["commit"].removesuffix("+") for row in rows} == {look["commit"]}
    assert {(row["method"], *row["settings"]) for row in rows} == {(None,)}


@pytest.mark.skipif(not (page.RESULTS / "entangled.jsonl").exists(), reason="not run yet")
def test_strong_entanglement_is_measured_on_development_classes_alone():
    rows = [row for row in page.read("entangled.jsonl") if row["benchmark"] == PROTOCOL.benchmark]
    assert {row["forget"] for row in rows} <= set(PROTOCOL.development)
    assert {len(row["commit"].removesuffix("+")) for row in rows} == {40}
