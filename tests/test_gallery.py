"""What is committed of the digits fits together: the numbers, where they come from, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from unweave.study import PRESETS
from unweave.study.store import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
RESULTS, GALLERY = ROOT / "results" / "digits" / "all", ROOT / "docs" / "gallery" / "digits"
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution holds no results")


def test_the_numbers_say_where_they_come_from():
    frame = pd.read_parquet(RESULTS / "results.parquet")
    assert tuple(frame.columns) == COLUMNS
    assert set(frame.seed) == {0, 1, 2}
    for start in json.loads((RESULTS / "provenance.json").read_text())["runs"]:
        assert start["command"] == "unweave study digits all --seeds 3 --out study"
        assert not start["commit"].endswith("+")  # of a tree without changes
    assert set(json.loads((RESULTS / "study.json").read_text())["presets"]) == set(PRESETS)


def test_the_gallery_shows_these_numbers():
    frame = pd.read_parquet(RESULTS / "results.parquet")
    accuracy = frame[(frame.metric == "accuracy") & (frame.subset != "")]
    means = accuracy.groupby(["method", "variant", "split", "subset"]).value.mean()
    shown = pd.read_csv(GALLERY / "tables" / "accuracy.csv", keep_default_na=False)
    assert {(row.method, row.variant) for row in shown.itertuples()} == {key[:2] for key in means.index}
    for row in shown.to_dict("records"):
        for split in ("train", "test"):
            for subset in ("forget", "adjacent", "remote"):
                mean = means[row["method"], row["variant"], split, subset]
                assert float(row[f"{split}_{subset}_accuracy_mean"]) == pytest.approx(mean)
    assert (GALLERY / "index.html").stat().st_size < 3e6
