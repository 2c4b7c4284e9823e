"""The page on strangers says what the committed rows say, and the rows are of the committed look."""

from __future__ import annotations

import json

from bench.strangers import page
from bench.strangers.looks import FILE
from bench.strangers.tasks import TASKS


def test_the_page_has_the_committed_numbers():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text


def test_the_judgement_half_is_complete_and_of_one_look():
    rows = page.read("judgement.jsonl")
    half = {name for name, task in TASKS.items() if task.half == "judgement"}
    assert {(row["task"], row["seed"]) for row in rows} == {(name, seed) for name in half for seed in range(3)}
    assert len(rows) == 3 * len(half)
    (look,) = json.loads(FILE.read_text(encoding="utf-8"))["looks"]
    assert {row["commit"].removesuffix("+") for row in rows} == {look["commit"]}
    assert {(row["method"], *row["settings"]) for row in rows} == {(None,)}
