"""Small tasks of the suite whose data needs no download: the default without a setting forgets, keeps and is quiet."""

from __future__ import annotations

import pytest
from bench.strangers.originals import Case
from bench.strangers.tasks import find_task
from bench.strangers.tries import attempted

NAMES = ("blobs-mlp-cluster", "digits-mlp-three", "digits-cnn-20")  # a class, a label, single samples
POINTS = 0.035  # a digit more or less of 200 is half a point


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_task_of_the_suite_is_forgotten_and_kept_without_a_warning(name, seed, tmp_path):
    task = find_task(name)
    assert task.half == "development"
    row, result = attempted(Case(task, seed, data=None, cache=tmp_path), None, {})
    assert (row["error"], row["warnings"]) == (None, [])
    assert row["after"]["train forget"] == 0
    assert (result.verdict.forgotten, result.verdict.kept) == (True, True)
    for subset in ("test adjacent", "test remote"):
        assert row["after"][subset] >= row["before"][subset] - POINTS
    assert row["share"] < 1
