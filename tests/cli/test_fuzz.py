"""A sample of `make fuzz`: odd files, calls and command lines end in our own errors and write nothing outside."""

from __future__ import annotations

import contextlib
import json
import tempfile
import warnings
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers import fuzz
from tests.helpers.fuzz_parsers import PARSERS
from tests.helpers.places import ROOT
from unweave.lab.benchmarks import Benchmark

RESULTS = ROOT / "results" / "fuzz" / "fuzz.json"


@pytest.fixture(autouse=True)
def _training_as_it_was(monkeypatch):
    for name in ("train", "train_briefly"):
        monkeypatch.setattr(Benchmark, name, getattr(Benchmark, name))


@pytest.mark.parametrize("door", PARSERS)
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_an_odd_file_is_refused_in_our_words(door, chance):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.suppress(*fuzz.OURS):
        warnings.simplefilter("ignore")
        PARSERS[door][1](chance, Path(folder))


@pytest.mark.parametrize(
    "name",
    [
        "table 143",  # a schema that pyarrow does not know
        "table 282",  # text that is no UTF-8
        "files of a checkpoint 3",  # a number in the configuration that is none
        "files of a checkpoint 5",  # a tokenizer that its library refuses with a bare exception
        "files of a checkpoint 45",  # a text where the tokenizer has keys
        "files of a checkpoint 211",  # an architecture without a name
    ],
)
def test_inputs_that_were_findings_are_refused_now(name, tmp_path):
    door, _, number = name.rpartition(" ")
    with warnings.catch_warnings(), contextlib.suppress(*fuzz.OURS):
        warnings.simplefilter("ignore")
        fuzz.parse(door, int(number), tmp_path)


@pytest.fixture(scope="module")
def tally(tmp_path_factory):
    return fuzz.Tally(tmp_path_factory.mktemp("fuzz"))


def test_a_sample_of_all_kinds_has_no_finding(tally):
    fuzz.fuzz(tally, {"parsers": 400, "calls": 400, "lines": 25, "processes": 0})
    assert tally.counts["calls"] == 400
    assert tally.counts["lines"] == 25
    assert tally.ours["parsers"] > 200  # most inputs are odd enough to be refused
    assert tally.ours["calls"] > 200
    assert tally.tracebacks == {}
    assert tally.outside == {}


def test_the_harness_finds_what_it_looks_for(tally, tmp_path):
    def raise_foreign(folder):
        raise KeyError("samples")

    def write_outside(folder):
        (tmp_path / "outside").write_text("x")

    def follow_a_link(folder):
        (folder / "linked.json").write_text("x")

    def change_the_canary(folder):
        Path(tally.canary.place, "file.json").open("r+").close()

    for name, work in (("a", raise_foreign), ("b", write_outside), ("c", follow_a_link), ("d", change_the_canary)):
        tally.try_("trial", name, work)
    assert "KeyError" in tally.tracebacks.pop("a")
    assert set(tally.outside) == {"b", "c", "d"}
    tally.outside.clear()
    assert not tally.canary.is_whole()
    (tally.canary.place / "file.json").write_text("untouched")
    assert tally.canary.is_whole()


def test_an_input_is_made_from_its_number(tmp_path):
    for door in ("record", "weights"):
        made = []
        for name in ("one", "two"):
            (tmp_path / door / name).mkdir(parents=True)
            with contextlib.suppress(*fuzz.OURS):
                fuzz.parse(door, 17, tmp_path / door / name)
            made.append([file.read_bytes() for file in sorted((tmp_path / door / name).iterdir())])
        assert made[0] == made[1]
    assert fuzz.line(Random("lines 1")) == fuzz.line(Random("lines 1"))


@pytest.mark.skipif(not RESULTS.exists(), reason="the long run is not published here")
def test_the_published_run_found_nothing():
    found = json.loads(RESULTS.read_text())
    assert found["inputs"] == {
        "parsers": found["inputs"]["parsers"],
        "calls": 100_000,
        "lines": 10_000,
        "processes": 500,
    }
    assert found["inputs"]["parsers"] >= 1_000_000
    assert (found["tracebacks"], found["writes_outside"], found["findings"]) == (0, 0, [])
    assert len(found["provenance"]["commit"]) == 40
