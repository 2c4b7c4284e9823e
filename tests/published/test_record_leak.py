"""The table of what a record tells is that of the committed runs, and the record took nothing from the adversary."""

from __future__ import annotations

import csv
import importlib
import json

import pytest

from tests.helpers.places import ROOT

RESULTS = ROOT / "results" / "record-leak"
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution holds no results")


@pytest.fixture
def leak(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("record_leak")


def test_the_page_shows_what_was_measured(leak):
    with (RESULTS / "leak.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert leak.table(rows) in (ROOT / "docs" / "record.md").read_text()
    told = json.loads((RESULTS / "provenance.json").read_text())
    assert len(told["commit"]) == 40, "the source had uncommitted changes"
    assert told["command"].startswith("python tools/record_leak.py ")


def test_accuracies_take_fewer_bits_than_the_argument_allows(leak):
    """Two accuracies, before and after, of each of three subsets: one bit each."""
    with (RESULTS / "leak.csv").open() as file:
        for row in csv.DictReader(file):
            assert int(row["left_counts"]) <= int(row["left_record"]) * 2**6
            assert int(row["left_exact"]) <= 10
