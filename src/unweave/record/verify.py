"""Check a record: its content, signature and chain and, given them, the model, the data and the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unweave.evaluation import Scores
from unweave.files import canonical, sha256
from unweave.record import merkle, signing
from unweave.record.fingerprints import Content, ForgetSet, digest_of, fingerprint, salted_split, tensor_digests
from unweave.record.proofs import unhex
from unweave.record.record import content_hash, signed_bytes
from unweave.record.schema import NAMES
from unweave.split import Split

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Check:
    """One thing to check: whether it holds (None: it could not be checked), and what was found and where."""

    name: str
    holds: bool | None
    words: str


def check_content(record: Mapping[str, Any]) -> Check:
    """Check that the record is what its hash says, and name the section that is not."""
    if record["hash"] == content_hash(record):
        return Check("content", True, f"matches its hash {record['hash'][:16]}…")
    changed = [name for name in NAMES if record["sections"].get(name) != sha256(canonical(record.get(name)))]
    where = f"the section {', '.join(changed)} does" if changed else "its hash or its list of sections does"
    return Check("content", False, f"was changed: {where} not match")


def check_signature(record: Mapping[str, Any], public_key: bytes | None = None) -> Check:
    """Check who signed the record; with a public key, that it was its owner."""
    signature = record.get("signature")
    if signature is None:
        return Check("signature", None if public_key is None else False, "there is none")
    signer = signing.name_of(signature["public_key"]) if _is_hex(signature["public_key"]) else "an unreadable key"
    if not signing.is_signed(signed_bytes(record), signature):
        return Check("signature", False, f"does not match the content (it claims the key {signer})")
    if public_key is None:
        return Check("signature", True, f"matches its own key {signer}; --public-key checks whose that is")
    mine = signature["public_key"] == public_key.hex()
    return Check("signature", mine, f"is by the key {signer}" + ("" if mine else ", which is not the one given"))


def check_chain(record: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]], key: bytes | None) -> list[Check]:
    """Check that a record continues the one before it, and that one the one before, newest first."""
    found = []
    for later, before in zip([record, *earlier], earlier, strict=False):
        name = f"chain to {before['request']['id']}"
        whole, signed = check_content(before), check_signature(before, key)
        link = later.get("previous") or {}
        if link.get("hash") != before["hash"]:
            found.append(Check(name, False, f"{later['request']['id']} names another record before it"))
        elif later["model"]["before"] != before["model"]["after"]:
            found.append(Check(name, False, "the model that it left is not the one that the next began with"))
        elif whole.holds is False or signed.holds is False:
            broken = whole if whole.holds is False else signed
            found.append(Check(name, False, f"the {broken.name} of that record {broken.words}"))
        else:
            found.append(Check(name, True, "unbroken"))
    last = earlier[-1] if earlier else record
    if (missing := last.get("previous")) is not None:
        words = f"{last['request']['id']} continues {missing['id']}, whose record was not given (--previous)"
        found.append(Check("chain", None, f"not followed to its start: {words}"))
    return found


def check_model(record: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Check:
    """Check that these are the weights after unlearning, and name the tensors that are not."""
    digests, known = tensor_digests(weights), record["model"]["tensors"]
    if digest_of(digests) == record["model"]["after"]:
        return Check("model after", True, f"matches {record['model']['after'][:16]}…")
    other = sorted(name for name in {*digests, *known} if digests.get(name) != known.get(name))
    return Check("model after", False, f"is another: {_some(other)} differ" if other else "is another")


def check_original(record: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Check:
    """Check that these are the weights before unlearning."""
    same = fingerprint(weights) == record["model"]["before"]
    return Check("model before", same, f"matches {record['model']['before'][:16]}…" if same else "is another")


def check_split(record: Mapping[str, Any], split: Split, proofs: Mapping[str, Any]) -> Check:
    """Check with the private salt that this is the division of the data into forget, adjacent and remote samples."""
    same = salted_split(split, unhex(proofs["split_salt"], "split_salt")) == record["split"]["hash"]
    return Check("split", same, "matches" if same else f"is another ({split})")


def check_forget(
    record: Mapping[str, Any], split: Split, proofs: Mapping[str, Any], content: Content | None = None
) -> Check:
    """Check with the private salts that the forget samples are those of the request, and name those that are not."""
    name = "forget samples"
    if [sample["row"] for sample in proofs["samples"]] != split.forget.tolist():
        return Check(name, False, "the proofs are of other samples than the split's")
    leaves = [unhex(sample["leaf"], "leaf") for sample in proofs["samples"]]
    if merkle.root(leaves).hex() != record["forget"]["root"]:
        return Check(name, False, "the proofs do not lead to the record's root")
    now = ForgetSet.of(split, content, salts=[unhex(sample["salt"], "salt") for sample in proofs["samples"]])
    other = [row for row, mine, known in zip(now.rows, now.leaves, leaves, strict=True) if mine != known]
    if other:
        return Check(name, False, f"{len(other)} have another content than in the request (first: sample {other[0]})")
    return Check(name, True, f"all {len(leaves)} have the content that the request had")


def check_scores(record: Mapping[str, Any], scores: Scores, *, tolerance: float = TOLERANCE) -> Check:
    """Check that scores computed again are those of the record, and name the one that is furthest off."""
    again = {metric.place: metric.value for metric in scores.metrics}
    off, compared = [], 0
    for metric in record["scores"]["metrics"]:
        place = (metric["split"], metric["subset"], metric["metric"])
        known, found = metric.get("value"), again.get(place)
        if known is None or found is None:
            continue
        compared += 1
        if not math.isclose(known, found, rel_tol=tolerance, abs_tol=tolerance):
            off.append((abs(known - found), f"{' '.join(filter(None, place))} is {found:.4g}, not {known:.4g}"))
    if not compared:
        return Check("scores", False, "none of the record's could be computed again")
    if off:
        return Check("scores", False, f"{len(off)} of {compared} differ; furthest: {max(off)[1]}")
    return Check("scores", True, f"all {compared} that were computed again agree within {tolerance:g}")


def _is_hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
