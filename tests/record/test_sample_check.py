"""The holder of a sample believes a record only if it is signed, and a proof only if it is the record's own."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from tests.helpers.records import Run
from unweave.record import content_digest, generate, merkle, prove, signing
from unweave.record.sealing import content_hash, signed_bytes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("holder"))


@pytest.fixture
def check(run, tmp_path, unweave_command):
    """Check a sample against a record and a proof; by default, the request's own."""
    np.save(tmp_path / "mine.npy", run.data[0][2].numpy())

    def call(*options, record=run.record, proof=None):
        (tmp_path / "record.json").write_text(json.dumps(record))
        (tmp_path / "proof.json").write_text(json.dumps(proof or prove(run.record, run.proofs, 2)))
        files = (tmp_path / "record.json", tmp_path / "proof.json", tmp_path / "mine.npy")
        return unweave_command("record", "check-sample", *files, *options)

    return call


def with_another_root(run, row=50):
    """Return a record whose root stands for one sample that was never in the request, and the proof of it."""
    salt = bytes(32)
    leaf = merkle.leaf(salt, content_digest(run.split, 2, None))
    record = copy.deepcopy(run.record)
    record["forget"] |= {"root": leaf.hex(), "count": 1}
    record["hash"] = content_hash(record)
    proof = prove(record, {"samples": [{"row": row, "salt": salt.hex(), "leaf": leaf.hex()}]}, row)
    return record, proof


def test_a_signed_record_confirms_with_its_key(check, run):
    code, out, err = check("--public-key", run.folder / "key.pub")
    assert code == 0, err
    assert out.split(" ")[1:5] == ["was", "among", "the", "8"]
    code, out, _ = check()
    assert code == 0
    assert out.startswith(f"Signed by the key {signing.name_of(run.public.hex())}, but")


def test_a_record_with_another_root_is_refused_whatever_the_options(check, run):
    record, proof = with_another_root(run)
    for options in ((), ("--public-key", run.folder / "key.pub"), ("--unsigned",)):
        code, out, err = check(*options, record=record, proof=proof)
        assert (code, out) == (1, "")
        assert "signature does not match the content" in err


def test_a_record_that_does_not_match_its_hash_is_refused(check, run):
    record, proof = with_another_root(run)
    code, out, err = check("--unsigned", record=record | {"hash": run.record["hash"]}, proof=proof)
    assert (code, out) == (1, "")
    assert "content was changed" in err


def test_a_record_signed_by_another_key_is_refused(check, run, tmp_path):
    record, proof = with_another_root(run)
    generate(tmp_path / "mallory")
    record["signature"] = signing.sign(signing.load_private(tmp_path / "mallory"), signed_bytes(record))
    code, out, err = check("--public-key", run.folder / "key.pub", record=record, proof=proof)
    assert (code, out) == (1, "")
    assert "which is not the one given" in err


def test_an_unsigned_record_is_refused_unless_asked_for(check, run):
    record, proof = with_another_root(run)
    del record["signature"]
    code, out, err = check(record=record, proof=proof)
    assert (code, out, "is not signed" in err) == (1, "", True)
    code, out, err = check("--public-key", run.folder / "key.pub", record=record, proof=proof)
    assert (code, out, "is not signed" in err) == (1, "", True)
    code, out, err = check("--unsigned", record=record, proof=proof)
    assert code == 0, err
    assert out.startswith("Unsigned, so anyone may have written this record: ")
    code, _, err = check("--unsigned", "--public-key", run.folder / "key.pub", record=record, proof=proof)
    assert (code, "Give only one of them" in err) == (2, True)


@pytest.mark.parametrize("name", ["record", "root", "count"])
def test_the_proof_of_another_record_is_refused(check, run, name):
    proof = prove(run.record, run.proofs, 2)
    code, out, err = check(proof=proof | {name: 9 if name == "count" else "00" * 32})
    assert (code, out) == (1, "")
    assert f"proof names another {name} than this record" in err
