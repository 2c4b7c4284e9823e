"""Check a record: its content, its signature, the model, the data and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from unweave.data import Partition
from unweave.record import merkle, signing
from unweave.record.checks import Check
from unweave.record.deletion_request import Content
from unweave.record.forget_set import ForgetSet, salted_split
from unweave.record.proofs import unhex
from unweave.record.schema import NAMES
from unweave.record.sealing import content_hash, plain, signed_bytes
from unweave.storage import (
    SCORES,
    canonical,
    configuration_file,
    digest_of,
    fingerprint,
    read_configuration,
    read_json,
    sha256,
    tensor_digests,
)


def check_content(record: Mapping[str, Any]) -> Check:
    """Check the record against its hash, and name the sections that were changed."""
    if record["hash"] == content_hash(record):
        return Check("content", True, f"matches its hash {record['hash'][:16]}…")
    changed = [name for name in NAMES if record["sections"].get(name) != sha256(canonical(record.get(name)))]
    where = "its hash or its list of sections does"
    if changed:
        where = f"the section {changed[0]} does" if len(changed) == 1 else f"the sections {', '.join(changed)} do"
    return Check("content", False, f"was changed: {where} not match")


def check_signature(record: Mapping[str, Any], public_key: bytes | None = None) -> Check:
    """Check the signature of the record; with a public key, also whose it is."""
    signature = record.get("signature")
    if signature is None:
        return Check("signature", None if public_key is None else False, "the record is not signed")
    signer = signing.name_of(signature["public_key"]) if _is_hex(signature["public_key"]) else "an unreadable key"
    if not signing.is_signed(signed_bytes(record), signature):
        return Check("signature", False, f"does not match the content (it claims the key {signer})")
    if public_key is None:
        return Check("signature", True, f"matches the key in the record, {signer}; --public-key checks whose key it is")
    mine = signature["public_key"] == public_key.hex()
    return Check("signature", mine, f"is by the key {signer}" + ("" if mine else ", which is not the one given"))


def check_model(record: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Check:
    """Check that these are the weights after unlearning, and name the tensors that differ."""
    digests, known = tensor_digests(weights), record["model"]["tensors"]
    if digest_of(digests) == record["model"]["after"]:
        return Check("model after", True, f"matches {record['model']['after'][:16]}…")
    other = sorted(name for name in {*digests, *known} if digests.get(name) != known.get(name))
    return Check("model after", False, f"does not match: {some(other)} differ" if other else "does not match")


def check_original(record: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Check:
    """Check that these are the weights before unlearning."""
    same = fingerprint(weights) == record["model"]["before"]
    return Check("model before", same, f"matches {record['model']['before'][:16]}…" if same else "does not match")


def check_split(record: Mapping[str, Any], split: Partition, proofs: Mapping[str, Any]) -> Check:
    """Check with the private salt that this is the split of the record."""
    same = salted_split(split, unhex(proofs["split_salt"], "split_salt")) == record["split"]["hash"]
    return Check("split", same, "matches" if same else f"does not match ({split})")


def check_forget(
    record: Mapping[str, Any], split: Partition, proofs: Mapping[str, Any], content: Content | None = None
) -> Check:
    """Check with the private salts that the forget samples are those of the request, and count those that differ."""
    name = "forget samples"
    if [sample["row"] for sample in proofs["samples"]] != split.forget.tolist():
        return Check(name, False, "the proofs and the split name different samples")
    leaves = [unhex(sample["leaf"], "leaf") for sample in proofs["samples"]]
    if merkle.root(leaves).hex() != record["forget"]["root"]:
        return Check(name, False, "the root of the proofs differs from the record's")
    now = ForgetSet.of(split, content, salts=[unhex(sample["salt"], "salt") for sample in proofs["samples"]])
    other = [row for row, mine, known in zip(now.rows, now.leaves, leaves, strict=True) if mine != known]
    if other:
        return Check(name, False, f"{len(other)} were changed since the request (first: sample {other[0]})")
    return Check(name, True, f"all {len(leaves)} are those of the request")


def check_beside(record: Mapping[str, Any], folder: Path) -> list[Check]:
    """Check the files beside a record. They are not signed, but they must agree with the record.

    The scores beside a record are exact. They are compared with a record whose numbers are (see `with_exact`).
    """
    configuration, scores = configuration_file(folder), folder / SCORES
    known = [(configuration, "configuration", read_configuration), (scores, "scores", lambda _: read_json(scores))]
    found = []
    for file, part, read in known:
        if not file.exists():
            continue
        name, section = file.name, record[part]
        if part == "scores" and "rounding" in section:
            found.append(Check(name, None, "not checked: the private file of exact scores is missing"))
            continue
        content = plain(read(folder))
        there = content if isinstance(content, dict) else {}
        other = sorted(key for key, entry in section.items() if there.get(key) != entry)
        found.append(
            Check(name, not other, f"differs from the record: {some(other)}" if other else "agrees with the record")
        )
    return found


def _is_hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
