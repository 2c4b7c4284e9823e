"""A sample of `make fuzz`: odd files, calls and command lines end in our own errors and write nothing outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unweave as uw
from tests.helpers import fuzz
from tests.helpers.fuzz_parsers import PARSERS
from tests.helpers.fuzz_tally import KINDS, OURS, Stopped, Tally, join
from tests.helpers.places import ROOT
from tests.helpers.texts import TEMPLATE, llama, tokenizer
from unweave.lab.benchmarks import Benchmark

RESULTS = ROOT / "results" / "fuzz" / "fuzz.json"


@pytest.fixture(autouse=True)
def _ready(monkeypatch):
    """What the harness changes is as it was for the tests after this one."""
    changed = [
        (Benchmark, "train"),
        (Benchmark, "train_briefly"),
        (fuzz.datasets.config, "HF_HUB_OFFLINE"),
        (fuzz.huggingface_hub.constants, "HF_HUB_OFFLINE"),
        (fuzz.typer.main, "get_command_from_info"),
        (fuzz.unpickling, "subprocess"),
    ]
    for place, name in changed:
        monkeypatch.setattr(place, name, getattr(place, name))
    fuzz.make_ready()


@pytest.mark.parametrize("door", PARSERS)
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_an_odd_file_is_refused_in_our_words(door, chance):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.suppress(*OURS):
        warnings.simplefilter("ignore")
        PARSERS[door][1](chance, Path(folder))


@pytest.mark.parametrize(
    "name",
    [
        "table 143",  # a schema that pyarrow does not know
        "table 282",  # text that is no UTF-8
        "table 90008205",  # a number of rows below zero
        "prompts 417",  # text with half of a surrogate pair
        "request of the run before 1503",  # a number where a list of rows should be
        "scores 1263",  # null where a count should be
        "files of a checkpoint 3",  # a number in the configuration that is none
        "files of a checkpoint 5",  # a tokenizer that its library refuses with a bare exception
        "files of a checkpoint 45",  # a text where the tokenizer has keys
        "files of a checkpoint 211",  # an architecture without a name
        "run that is examined 205",  # a name that is longer than a file may have
        "run that is examined 28",  # --from names a function that needs arguments
        "run that is examined 298",  # or what is no function
        "study that goes on 6001690",  # null for the list of scores
        "study that goes on 6001863",  # null for the settings of a cell
        "study that goes on 6002195",  # null for the options of a study
        "run that is examined 92",  # a tokenizer whose limit is a text
    ],
)
def test_inputs_that_were_findings_are_refused_now(name, tmp_path):
    door, _, number = name.rpartition(" ")
    with warnings.catch_warnings(), contextlib.suppress(*OURS):
        warnings.simplefilter("ignore")
        fuzz.parse(door, int(number), tmp_path)


@pytest.mark.parametrize("model", [torch.nn.Identity(), torch.nn.Linear(3, 2)])
def test_a_model_that_takes_no_texts_is_not_asked(model):
    rows = [{"question": "where does ada live ?", "answer": "ada lives in rome ."}]
    with pytest.raises(uw.UsageError, match="cannot take a sample"):
        uw.ask(model, {"forget": rows}, tokenizer(), template=TEMPLATE)


ODD = [0, 3.5, None, "x", {"forget": 1}, torch.zeros(3), torch.tensor(3), np.zeros(2), Path("nowhere"), [[1], [2]]]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["save_answers", "score_answers", "write_logs", "answers", "packed", "ask", "Track"])
def test_functions_of_language_models_and_trackers_refuse_what_they_cannot_take(name, value, tmp_path):
    rows = [{"question": "where does ada live ?", "answer": "ada lives in rome ."}]
    calls = {
        "save_answers": lambda: uw.save_answers(value, tmp_path / "answers.json"),
        "score_answers": lambda: uw.score_answers(value, resamples=0),
        "write_logs": lambda: uw.write_logs(value, tmp_path / "logs"),
        "answers": lambda: uw.answers(value, tokenizer(), template=TEMPLATE),
        "packed": lambda: uw.packed(value, tokenizer(), length=3),
        "ask": lambda: uw.ask(value, {"forget": rows}, tokenizer(), template=TEMPLATE),
        "Track": lambda: uw.Track(value).check(),
    }
    with pytest.raises(uw.UsageError):
        calls[name]()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write", 10**6),  # a model that does not stop wrote for hours
        ("gradients", torch.zeros(4)),
        ("longest", "many"),
        ("template", 7),
        ("compute", "cpu"),
    ],
)
def test_asking_refuses_options_that_it_cannot_take(name, value):
    rows = [{"question": "where does ada live ?", "answer": "ada lives in rome ."}]
    with pytest.raises(uw.UsageError, match=name):
        uw.ask(llama(layers=1), {"forget": rows}, tokenizer(), **{"template": TEMPLATE, name: value})


def test_other_options_of_language_models_are_checked(tmp_path):
    for call in (
        lambda: uw.PaddingCollator(0, side=np.arange(4)),
        lambda: uw.PaddingCollator("x"),
        lambda: uw.score_answers({}, resamples=10**6),
        lambda: uw.score_answers({}, reference=torch.zeros(3)),
        lambda: uw.score_answers({}, seed="x"),
        lambda: uw.write_logs({}, tmp_path, retrained=3),
        lambda: uw.write_logs({}, 0.5),
        lambda: uw.answers([], tokenizer(), template=TEMPLATE),
        lambda: uw.packed("one text", tokenizer(), length=3),
        lambda: uw.Track("tensorboard", folder=3).check(),
        lambda: uw.Split.where((torch.zeros(3, 2), torch.zeros(3)), forget=lambda sample: {}[0], adjacent=[True] * 3),
    ):
        with pytest.raises(uw.UsageError):
            call()


@pytest.fixture(scope="module")
def tally(tmp_path_factory):
    return Tally(tmp_path_factory.mktemp("fuzz"))


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
            with contextlib.suppress(*OURS):
                fuzz.parse(door, 17, tmp_path / door / name)
            made.append([file.read_bytes() for file in sorted((tmp_path / door / name).rglob("*.*"))])
        assert made[0] == made[1]
    assert fuzz.line(Random("lines 1")) == fuzz.line(Random("lines 1"))


def test_processes_share_the_inputs_and_one_that_dies_is_a_finding(tmp_path):
    shares = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        tally = Tally(tmp_path / str(number))
        fuzz.fuzz(tally, {"parsers": 0, "calls": 20, "lines": 0, "processes": 0}, share=(number, 3))
        tally.save()
        shares.append(Tally.saved(tally.home, ended=-11 if number == 2 else 0))
    found = join(shares)
    assert [part["inputs"]["calls"] for part in shares] == [7, 7, 6]
    assert found["inputs"] == {"parsers": 0, "calls": 20, "lines": 0, "processes": 0}
    assert (found["tracebacks"], found["findings"]) == (1, ["calls 17"])


def test_an_input_that_the_run_itself_interrupts_is_neither_counted_nor_a_finding(tmp_path):
    def interrupted(folder):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except BaseException:
            os.kill(os.getpid(), signal.SIGTERM)  # a group of processes is told twice: by its owner and by its first
            raise KeyError("what the interruption turned into") from None

    tally, before = Tally(tmp_path), signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, tally.stop)
        with pytest.raises(Stopped):
            tally.try_("lines", "lines 1", interrupted)
        tally.save()
    finally:
        signal.signal(signal.SIGTERM, before)
    found = Tally.saved(tmp_path, ended=0)
    assert (found["inputs"], found["tracebacks"], found["findings"]) == ({}, 0, [])


def test_a_run_may_be_limited_in_time(tmp_path):
    tally = Tally(tmp_path)
    fuzz.fuzz(tally, dict.fromkeys(KINDS, 1), minutes=0.0)
    assert tally.counts.total() == 0


@pytest.mark.skipif(not RESULTS.exists(), reason="the long run is not published here")
def test_the_published_run_found_nothing():
    found = json.loads(RESULTS.read_text())
    assert all(found["inputs"][kind] > 0 for kind in KINDS)
    assert (found["tracebacks"], found["writes_outside"], found["findings"]) == (0, 0, [])
    assert all(len(run["commit"]) == 40 for run in found["provenance"])
