"""Proofs and signatures also hold for one number of samples and one algorithm only."""

from __future__ import annotations

import hashlib

import pytest

from unweave.record import generate, is_included, merkle, prove
from unweave.record.signing import is_signed, load_private, sign


def request(count):
    """Return a record and private proofs with the entries that inclusion needs, and the contents of the samples."""
    contents = [hashlib.sha256(bytes([row])).digest() for row in range(count)]
    salts = [hashlib.sha256(b"salt" + bytes([row])).digest() for row in range(count)]
    leaves = [merkle.leaf(*pair) for pair in zip(salts, contents, strict=True)]
    record = {"hash": "", "forget": {"root": merkle.root(leaves).hex(), "count": count}}
    samples = [
        {"row": row, "salt": salt.hex(), "leaf": leaf.hex()}
        for row, (salt, leaf) in enumerate(zip(salts, leaves, strict=True))
    ]
    return record, {"samples": samples}, contents


@pytest.mark.parametrize("count", [1, 5, 8])
def test_a_proof_is_one_of_so_many_samples_as_the_record_says(count):
    record, proofs, contents = request(count)
    for row, content in enumerate(contents):
        proof = prove(record, proofs, row)
        assert is_included(record, proof, content)
        for other in {*range(2 * count + 2)} - {count}:
            assert not is_included(record, proof | {"count": other}, content)
            assert not is_included(record | {"forget": record["forget"] | {"count": other}}, proof, content)


def test_the_way_to_the_root_alone_does_not_say_of_how_many():
    """The first of eight samples has the same path as the first of seven, so the count must be compared."""
    record, proofs, contents = request(8)
    proof = prove(record, proofs, 0)
    mine = merkle.leaf(bytes.fromhex(proof["salt"]), contents[0])
    path, root = [bytes.fromhex(node) for node in proof["path"]], bytes.fromhex(proof["root"])
    assert all(merkle.proves(mine, 0, count, path, root) for count in (7, 8))
    assert not is_included(record, proof | {"count": 7}, contents[0])


def test_a_signature_is_of_the_algorithm_that_it_names(tmp_path):
    generate(tmp_path / "key")
    signature = sign(load_private(tmp_path / "key"), b"content")
    assert is_signed(b"content", signature)
    assert not is_signed(b"other", signature)
    for name in ("ed25519", "Ed448", "none", "", None):
        assert not is_signed(b"content", signature | {"algorithm": name})
    for part in signature:
        assert not is_signed(b"content", {name: value for name, value in signature.items() if name != part})
