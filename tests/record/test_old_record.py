"""Records that earlier code wrote still hold.

``data/version-1`` was written by the code before the package moved into rooms: the folder of a signed run, with the
public key, the data and the original model beside it. The private key was thrown away.
"""

from __future__ import annotations

import copy
import shutil
import sys
import warnings

import pytest
import safetensors.torch

from tests.helpers.calling import unlearn_on_record
from tests.helpers.records import FAST, OLD, OLD_RUN, OldRun
from unweave import Request, Split
from unweave.record import (
    check_beside,
    check_chain,
    check_content,
    check_forget,
    check_model,
    check_original,
    check_scores,
    check_signature,
    check_split,
    content_digest,
    describe,
    is_included,
    prove,
    read_record,
)


@pytest.fixture(scope="module")
def old():
    return OldRun()


def test_an_old_record_holds_in_every_part(old):
    record = old.record
    assert (record["format"], record["version"]) == ("unweave-record", 1)
    checks = [
        check_content(record),
        check_signature(record, old.public),
        *check_chain(record, [], old.public),
        check_model(record, safetensors.torch.load_file(OLD_RUN / "model.safetensors")),
        check_original(record, old.original.state_dict()),
        check_split(record, old.split, old.proofs),
        check_forget(record, old.split, old.proofs),
        check_scores(record, old.scores()),
        *check_beside(record, OLD_RUN),
    ]
    assert [check for check in checks if not check.holds] == []
    assert len(checks) == 9
    assert record["certificate"]["bound"] == pytest.approx(0.011, abs=1e-3)
    assert "Ümit's eight points" in describe(record)


def test_every_sample_of_an_old_request_is_proven(old):
    for row in old.split.forget.tolist():
        proof = prove(old.record, old.proofs, row)
        assert is_included(old.record, proof, content_digest(old.split, row, None))
        assert not is_included(old.record, proof, content_digest(old.split, row + 1, None))


def test_the_command_verifies_an_old_record(old, tmp_path, monkeypatch, capsys):
    from unweave.cli import main

    (tmp_path / "yours.py").write_text(
        "from tests.helpers.records import OldRun\n"
        "def all(): old = OldRun(); return old.original, old.split, old.test\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["verify", OLD_RUN, "--public-key", OLD / "key.pub", "--original", OLD / "original.safetensors"]
    words += ["--from", "yours:all", "--recompute", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["unweave", "record", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    marks = {line.split()[0] for line in shown.splitlines()}
    assert marks == {"ok", "–"}
    assert [line for line in shown.splitlines() if not line.startswith("ok")] == [
        "–     exact scores: version 1 has no digest of private scores: it holds exact ones, which may tell who was "
        "forgotten"
    ]
    for name in ("content", "signature", "model after", "model before", "split", "forget samples", "scores"):
        assert f"ok    {name}: " in shown


def test_a_new_request_continues_an_old_record(old, tmp_path):
    second = Split(old.data, forget=range(40, 45), adjacent=range(45, 60))
    request = Request(id="2031-18", previous=OLD_RUN / "record.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unlearn_on_record(
            old.model,
            second.after(old.split),
            "two-stage",
            profile="released",
            out=tmp_path / "two",
            request=request,
            **FAST,
        )
    record = read_record(tmp_path / "two" / "record.json")
    assert record["previous"] == {"hash": old.record["hash"], "id": "2031-17"}
    assert [check.holds for check in check_chain(record, [old.record], None)] == [True]
    assert [row["id"] for row in record["drift"]] == ["2031-17", "2031-18"]


def test_changes_to_an_old_record_are_noticed(old, tmp_path):
    shutil.copytree(OLD_RUN, tmp_path / "run")
    weights = bytearray((OLD_RUN / "model.safetensors").read_bytes())
    weights[-3] ^= 16
    (tmp_path / "run" / "model.safetensors").write_bytes(weights)
    found = check_model(old.record, safetensors.torch.load_file(tmp_path / "run" / "model.safetensors"))
    assert found.holds is False
    forged = copy.deepcopy(old.record)
    forged["request"]["text"] = "nothing"
    assert "section request" in check_content(forged).words
    assert check_signature(forged, old.public).holds is False


def without(record, metric):
    record = copy.deepcopy(record)
    record["scores"]["metrics"] = [row for row in record["scores"]["metrics"] if row["metric"] != metric]
    for part in ("train", "test"):
        for subset in record["scores"][part].values():
            subset.pop(metric, None)
    return record


def test_a_number_that_an_old_record_does_not_hold_is_named(old):
    scores = old.scores()
    lacking = without(old.record, "loss")
    found = check_scores(lacking, scores)  # of the same schema: somebody left it out
    assert (found.holds, "loss" in found.words) == (False, True)
    lacking["scores"]["schema"] -= 1
    found = check_scores(lacking, scores)
    assert (found.holds, "does not hold train forget loss (value)" in found.words) == (True, True)
    for row in lacking["scores"]["metrics"]:
        if (row["split"], row["subset"], row["metric"]) == ("train", "forget", "accuracy"):
            row["value"] += 1
    assert check_scores(lacking, scores).holds is False


def test_a_folder_in_the_place_of_proofs_is_no_traceback(unweave_command):
    code, out, err = unweave_command("record", "verify", OLD_RUN / "record.json", "--proofs", ".")
    assert code in (0, 1)
    assert "Traceback" not in out + err
