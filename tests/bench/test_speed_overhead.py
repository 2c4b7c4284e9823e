"""The method written by hand computes what ours computes, so their times can be compared."""

from __future__ import annotations

import ast
import copy
from pathlib import Path

import pytest
import torch

from bench import by_hand, overhead


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("name", overhead.CASES)
def test_both_sides_take_the_same_steps(name, stage, monkeypatch):
    monkeypatch.setattr(overhead, "EPOCHS", {"stage1_epochs": 1, "stage2_epochs": 2})
    case = overhead.CASES[name]()
    run_by_hand, steps = overhead.theirs(case, stage)
    ours, theirs = overhead.ours(case, stage)(case.model), copy.deepcopy(case.model)
    logged = run_by_hand(theirs)
    assert steps == len(logged) == len(ours.history) > 3
    for one, other in zip(ours.history, logged, strict=True):
        assert {name: float(value) for name, value in other.items()} == pytest.approx(
            {name: one[name] for name in other}, rel=1e-3, abs=1e-5
        )
    before, one, other = (
        torch.nn.utils.parameters_to_vector(model.parameters()) for model in (case.model, ours.model, theirs)
    )
    assert (one - other).norm() < 1e-2 * (one - before).norm()


def test_both_sides_are_timed_over_the_same_steps(monkeypatch):
    monkeypatch.setattr(overhead, "EPOCHS", {"stage1_epochs": 1, "stage2_epochs": 1})
    mine, hand = (overhead.taken("digits", side, counted=True)["parts"] for side in ("ours", "by hand"))
    assert list(mine) == list(hand) == ["digits, stage 1", "digits, stage 2"]
    for name in mine:
        assert mine[name]["count"] == hand[name]["count"] > 3
        assert len(mine[name]["intervals"]) == len(hand[name]["intervals"])
        calls = [sum(calls for *_, calls in side[name]["intervals"]) / side[name]["count"] for side in (mine, hand)]
        assert calls[0] > calls[1] > 100


def test_the_yardstick_uses_nothing_of_unweave():
    tree = ast.parse(Path(by_hand.__file__).read_text(encoding="utf-8"))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert {name.partition(".")[0] for name in names} == {"__future__", "collections", "dataclasses", "torch", "typing"}
