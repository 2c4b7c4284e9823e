"""A sample of the kill matrix; the whole of it is `make torture`, with its result in results/torture."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from tests.helpers.places import ROOT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_runs_that_are_killed_end_like_one_that_was_not():
    """Methods with every kind of state: multiplier, references, velocity, optimiser, mask."""
    methods = "two-stage,salun"
    words = [
        sys.executable,
        "-m",
        "tests.helpers.torture",
        "--small",
        "--work",
        methods,
        "--kills",
        "8",
        "--seed",
        "3",
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"8 killed runs of 2 works, (\d+) kills, 0 differing bits: all ended like", done.stdout)
    kills = int(said.group(1))
    assert kills >= 8


def test_the_committed_matrix_is_whole():
    from tests.helpers.fitting import ON_ANYTHING

    files = [ROOT / "results" / "torture" / name / "results.parquet" for name in (".", "adaptive")]  # it came later
    frame = pd.concat(map(pd.read_parquet, files))
    assert set(frame.method) == set(ON_ANYTHING) - {"original"}
    assert (frame.groupby("method").size() >= 9).all()
    assert frame[["weights", "history", "scores", "configuration"]].to_numpy().all()
    assert frame.kills.sum() >= len(frame)


def test_the_committed_matrix_of_all_works_is_whole():
    from unweave.methods import METHODS

    frame = pd.read_parquet(ROOT / "results" / "torture" / "made-up" / "results.parquet")
    assert set(frame.method) == {*METHODS, "study", "tuning", "request"} - {"original"}
    assert frame[["weights", "history", "scores", "configuration", "files"]].to_numpy().all()
    assert frame.differing_bits.sum() == 0
    assert frame.kills.sum() >= 58
