"""A sample of the kill matrix; the whole of it is `make torture`, with its result in results/torture."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from tests.helpers.places import ROOT
from unweave.methods import METHODS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_runs_that_are_killed_end_like_one_that_was_not():
    """Methods with every kind of state: multiplier, references, velocity, optimiser, mask."""
    methods = "two-stage,salun"
    words = [
        sys.executable,
        "-m",
        "tests.helpers.torture",
        "--work",
        methods,
        "--kills",
        "8",
        "--seed",
        "3",
        "--jobs",
        "2",
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"8 killed runs of 2 works, (\d+) kills, 0 differing bits: all ended like", done.stdout)
    kills = int(said.group(1))
    assert kills >= 8


def test_the_committed_matrix_is_whole():
    """It has a thousand kills of every method, a study, a tuning and a request, and no bit differs."""
    folder = ROOT / "results" / "torture"
    frame, about = pd.read_parquet(folder / "results.parquet"), json.loads((folder / "provenance.json").read_text())
    assert set(frame.method) == {*METHODS, "study", "tuning", "request"} - {"original"}
    assert frame[["weights", "history", "scores", "configuration", "files"]].to_numpy().all()
    assert frame.differing_bits.sum() == about["differing_bits"] == 0
    assert frame.kills.sum() == about["kills"] >= 1000
    assert frame.groupby("method").size().min() >= 20
