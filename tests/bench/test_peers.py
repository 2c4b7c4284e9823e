"""Peers: a fake one, made on the spot, runs by the command line and is judged like ours."""

from __future__ import annotations

import json
import sys

import pytest
from bench.peers import page
from bench.peers.__main__ import main
from bench.peers.case import Case, prepare
from bench.peers.rivals import drawn
from bench.peers.spaces import SPACES

from tests.helpers.places import ROOT
from unweave import UsageError
from unweave.methods import find_method

ADAPTERS = ROOT / "bench" / "peers" / "adapters"
# It reads the case by the helper of the real adapters, with a package that stands in for one that is not there.
FAKE = f"""
import sys
sys.path.insert(0, {str(ADAPTERS)!r})
from handover import Given, StandIn
given = Given.read(sys.argv[1:])
StandIn("nobody_has_this", half=0.5)
import nobody_has_this.inner
from peer import run
assert nobody_has_this.half == 0.5 and nobody_has_this.Anything.at("all")
network = given.network()
inputs, labels = given.inputs("train", "forget"), given.labels("train", "forget")
given.answer(lambda: run(given.method, network, inputs, labels, **given.settings), ("torch",), stand_ins=["nobody"])
"""
PEER = """
import torch

def run(method, network, inputs, labels, scale=0.0):
    if method == "fail":
        raise RuntimeError("no such thing")
    network.eval()  # otherwise a look would change the running means
    torch.nn.functional.cross_entropy(network(inputs), labels).backward()
    with torch.no_grad():
        network(inputs)
        for parameter in network.parameters():
            parameter.mul_(float("nan") if method == "diverge" else scale)
    return network
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return prepare("digits", {}, data=None, seed=0, folder=tmp_path_factory.mktemp("peers") / "case")


@pytest.fixture
def run(tmp_path, case):
    (tmp_path / "peer.py").write_text(PEER)
    adapter, rows = tmp_path / "adapter.py", tmp_path / "rows.jsonl"
    adapter.write_text(FAKE)

    def call(*words, command=("run",)):
        tool = ["--tool", "fake", "--python", sys.executable, "--place", str(tmp_path), "--adapter", str(adapter)]
        assert main([*command, str(case.folder), *words, *tool, "--rows", str(rows)]) == 0
        return [json.loads(line) for line in rows.read_text().splitlines()]

    return call


def test_a_peer_gets_our_original_and_is_judged_like_ours(run, case):
    kept, gone = run("scale", "--set", "scale=1.0") + run("scale")[1:]
    assert kept["after"] == kept["before"] == case.six(case.model())
    assert gone["after"]["train forget"] in {0.0, 1.0}  # a network of zeros says one class for all
    assert (kept["kind"], gone["kind"]) == ("settings", "default")
    for row in (kept, gone):
        assert row["gradients"] == len(case.tensors["train.forget"])  # the look without gradients does not count
        assert row["error"] is None
        assert {"commit", "date", "hardware", "versions", "command"} <= set(row["provenance"])
        assert "torch" in row["versions"]
        assert "/" not in row["provenance"]["command"]


def test_a_failure_and_a_divergence_are_rows(run):
    failed, diverged = run("fail", "diverge")
    assert failed["error"] == "RuntimeError: no such thing"
    assert diverged["error"] == "the weights are not finite"
    assert failed["score"] == diverged["score"] == 0.0


def test_the_best_trial_on_other_data_is_run_on_the_case(run, case, tmp_path, monkeypatch):
    monkeypatch.setitem(SPACES, ("fake", "scale"), {"scale": (0.9, 1.1)})
    other = tmp_path / "other"
    prepare("digits", {"forget": 7}, data=None, seed=0, folder=other, like=case.folder)
    assert Case(other).six(Case(other).model())["train forget"] == 1.0
    rows = run("scale", "--trials", "2", command=("tune", str(other)))
    assert [row["kind"] for row in rows] == ["trial", "trial", "tuned"]
    assert [row["options"] for row in rows] == [{"forget": 7}, {"forget": 7}, {}]
    best = max(rows[:2], key=lambda row: row["score"])
    assert rows[2]["settings"] == best["drawn"]
    again = run("scale", "--tuned")
    assert again[3]["settings"] == best["drawn"]


def test_errors_say_what_to_do(case, tmp_path, capsys):
    assert main(["run", str(case.folder), "RFE", "--tool", "torchunlearn"]) == 2
    assert "--python and --place" in capsys.readouterr().err
    assert main(["tune", str(case.folder), str(case.folder), "adaptive", "--tool", "unweave"]) == 2
    assert "Prepare one with another --option" in capsys.readouterr().err
    assert main(["run", str(tmp_path), "adaptive", "--tool", "unweave"]) == 2
    assert "bench.peers prepare" in capsys.readouterr().err
    with pytest.raises(UsageError, match="another case"):
        prepare("digits", {}, data=None, seed=1, folder=case.folder)


def test_spaces_name_settings_of_ours_and_trials_repeat():
    for (tool, method), space in SPACES.items():
        if tool == "unweave":
            assert set(space) <= {row["name"] for row in find_method(method).describe()}
        assert drawn(space, 0, seed=0) == {}
        assert drawn(space, 3, seed=0) == drawn(space, 3, seed=0) != drawn(space, 4, seed=0)


def test_a_table_shows_how_many_seeds_failed():
    row = {"tool": "t", "method": "m", "kind": "default", "gradients": 10, "cpu_seconds": 1.0}
    done = row | {"error": None, "after": dict.fromkeys(page.PARTS, 0.5)}
    assert page.table([done, row | {"error": "broken"}]).splitlines()[-1].endswith("| 10 | 1.0 | 1 of 2 |")
    assert "broken" in page.table([row | {"error": "broken"}])
