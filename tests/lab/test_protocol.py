"""The protocol: its version pins what it says, its classes are drawn as it says, and numbers keep its version."""

from __future__ import annotations

import csv
import hashlib
import json

from bench.strangers.tasks import TASKS

from tests.helpers.places import ROOT
from tests.helpers.tiny import tiny
from unweave.lab.benchmarks import BENCHMARKS
from unweave.lab.protocol import PROTOCOL
from unweave.lab.report import MEASURES
from unweave.lab.study import plan, run_study

PAGE = ROOT / "docs" / "protocol.md"
DIGESTS = {"1": "d3f0bbe04e8f"}  # a change of the protocol is a new version, with a line of its own here


def superclasses():
    lines = (ROOT / "src/unweave/lab/benchmarks/data/cifar100.csv").read_text().splitlines()
    return {row["name"]: row["superclass"] for row in csv.DictReader(line for line in lines if line[0] != "#")}


def drawn(word, names):
    return sorted(names, key=lambda name: hashlib.sha256(f"{word} {name}".encode()).hexdigest())


def test_a_version_says_what_it_said():
    assert DIGESTS[PROTOCOL.version] == PROTOCOL.digest()


def test_classes_share_no_superclass_and_are_drawn_by_the_hash():
    of = superclasses()
    suite = [name.rpartition("-")[2] for name in TASKS if name.startswith("cifar")]
    taken = {of[name] for name in (*PROTOCOL.reporting, *PROTOCOL.development, *suite) if name in of}
    reporting = [of[name] for name in PROTOCOL.reporting]
    assert len({*reporting}) == len(reporting) == 10
    assert not {*reporting} & {of[name] for name in PROTOCOL.tuning}
    assert not {*PROTOCOL.reporting} & {*PROTOCOL.development, *PROTOCOL.tuning}
    shared = [name for name in PROTOCOL.development if of[name] in reporting]
    assert f"Five development classes ({', '.join(shared)})" in " ".join(PAGE.read_text(encoding="utf-8").split())
    order = drawn("tuning", [name for name in of if of[name] not in taken])
    second = next(name for name in order if of[name] != of[order[0]])
    assert PROTOCOL.tuning == (order[0], second)
    assert PROTOCOL.large == tuple(drawn("large", PROTOCOL.reporting)[:4])


def test_seeds_of_tuning_report_nothing_and_measures_exist():
    assert not {*PROTOCOL.seeds} & {*PROTOCOL.tuning_seeds}
    assert {*PROTOCOL.measures} <= {measure.name for measure in MEASURES}
    assert PROTOCOL.benchmark in BENCHMARKS


def test_a_study_keeps_the_version_with_its_numbers(tmp_path):
    run_study(tiny(), plan(["original"], seeds=1, benchmark=tiny()), tmp_path / "study", device="cpu")
    (start,) = json.loads((tmp_path / "study" / "provenance.json").read_text())["runs"]
    assert start["protocol"] == PROTOCOL.version
