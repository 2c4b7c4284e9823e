"""Scores from a file: odd ones are refused in one sentence. The fuzzing harness found these."""

from __future__ import annotations

import pytest

from unweave import UsageError
from unweave.evaluation import Scores

ROW = {"split": "train", "subset": "forget", "metric": "accuracy", "value": 0.5, "better": "lower"}


def test_scores_with_few_entries_are_read_and_shown():
    found = Scores.from_dict(
        {"schema": 2, "metrics": [ROW], "train": {"remote": {"samples": 3}}, "test": None, "model": None}
    )
    assert "50.00%" in str(found)
    assert "train    forget            –" in str(found)
    assert found.metric("accuracy", "train", "forget").value == 0.5
    assert Scores.from_dict(found.to_dict()).to_dict() == found.to_dict()


@pytest.mark.parametrize(
    "content",
    [
        [],
        "x",
        None,
        {"schema": 1},
        {"schema": 2, "train": 7},
        {"schema": 2, "train": {"forget": "x"}},
        {"schema": 2, "test": {"forget": {"samples": 0.1}}},
        {"schema": 2, "train": {"forget": {"samples": 3, "accuracy": "high"}}},
        {"schema": 2, "model": 1.5},
        {"schema": 2, "metrics": 7},
        {"schema": 2, "metrics": ["x"]},
        {"schema": 2, "metrics": [{"metric": "accuracy"}]},
        {"schema": 2, "metrics": [ROW | {"value": "x"}]},
        {"schema": 2, "metrics": [ROW | {"better": "sideways"}]},
        {"schema": 2, "metrics": [ROW | {"better": {}}]},
        {"schema": 2, "metrics": [ROW | {"subset": ["forget"]}]},
        {"schema": 2, "metrics": [ROW | {"": 1}]},
    ],
)
def test_odd_scores_are_refused(content):
    with pytest.raises(UsageError):
        str(Scores.from_dict(content))
