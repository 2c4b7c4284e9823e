"""The tables of peers say what the committed rows say, and each row says where it comes from."""

from __future__ import annotations

import pytest
from bench.peers import page

pytestmark = pytest.mark.skipif(not page.RESULTS.exists(), reason="a source distribution holds no results")


def test_the_page_has_the_committed_numbers():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text


@pytest.mark.parametrize("name", page.TABLES)
def test_every_row_has_its_origin_and_every_tool_the_same_original(name):
    rows = page.read(name)
    assert {row["tool"] for row in rows} >= {"unweave", "torchunlearn"}
    for row in rows:
        assert {"command", "commit", "date", "hardware", "versions"} <= set(row["provenance"])
        if row["tool"] == "torchunlearn":
            assert len(row["commit of tool"]) == 40
        if row["tool"] == "supreme" and not row["error"]:
            assert row["versions"]["supreme-unlearning"]
    for key in {(str(row["options"]), row["seed"]) for row in rows}:
        before = [row["before"] for row in rows if (str(row["options"]), row["seed"]) == key]
        assert before == before[:1] * len(before)


def test_tuned_methods_had_as_many_trials_on_other_data():
    rows = page.read("digits")
    tuned = {(row["tool"], row["method"]) for row in rows if row["kind"] == "tuned"}
    counts = {key: sum((row["tool"], row["method"]) == key for row in rows if row["kind"] == "trial") for key in tuned}
    assert len(set(counts.values())) == 1
    forgotten = {kind: {str(row["options"]) for row in rows if row["kind"] == kind} for kind in ("trial", "tuned")}
    assert not forgotten["trial"] & forgotten["tuned"]


def test_the_page_says_of_the_methods_what_the_rows_say():
    rows = [row for row in page.read("digits") if row["kind"] in page.SHOWN]

    def means(tool, method, kind):
        done = [
            row["after"]
            for row in rows
            if (row["tool"], row["method"], row["kind"]) == (tool, method, kind) and not row["error"]
        ]
        return {part: sum(after[part] for after in done) / len(done) for part in page.PARTS}

    broken = [row for row in rows if row["method"] == "RFE" and row["kind"] == "default"]
    assert all(row["error"] or row["after"]["train adjacent"] == 0 for row in broken)
    best, ours = means("torchunlearn", "RFE", "tuned"), means("unweave", "two-stage", "default")
    assert best["train forget"] == best["test forget"] == 0
    for part in ("train", "test"):
        assert best[f"{part} adjacent"] > ours[f"{part} adjacent"]
        assert best[f"{part} remote"] < ours[f"{part} remote"]
    stopped = [bool(row["error"]) for row in rows if (row["method"], row["kind"]) == ("two-stage", "tuned")]
    assert sorted(stopped) == [False, True, True]
    for method in {row["method"] for row in rows if row["tool"] == "supreme"}:
        found = means("supreme", method, "default")
        assert found["train forget"] > 0.4 or found["test adjacent"] < 0.1
