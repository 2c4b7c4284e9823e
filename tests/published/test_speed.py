"""The overhead on a CPU that is published: where it comes from, that it is small, and that the page says the same."""

from __future__ import annotations

import json

import pytest

from bench import overhead
from tests.helpers.places import ROOT

FILE = ROOT / "results" / "speed" / "overhead-cpu.json"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="a source distribution holds no results")


def test_the_overhead_of_a_step_is_at_most_a_tenth():
    content = json.loads(FILE.read_text())
    assert content["provenance"]["command"].startswith("python -m bench.overhead")
    assert len(content["provenance"]["commit"]) == 40  # the tree had no uncommitted changes
    assert content["rounds"] * content["pairs"] >= 10
    assert set(content["parts"]) == {f"{name}, stage {stage}" for name in overhead.CASES for stage in (1, 2)}
    assert all(row["ratio"]["median"] <= 1.10 for row in content["parts"].values())


def test_the_page_has_these_numbers():
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    for name, row in json.loads(FILE.read_text())["parts"].items():
        mine, theirs = (1e3 * row[side]["median_processor_seconds"] for side in ("ours", "other"))
        assert f"| {name} | {mine:.1f} ms | {theirs:.1f} ms | {row['ratio']['median']:.2f} |" in page
