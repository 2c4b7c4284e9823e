"""The checks that the holder of one sample makes: the record, its signature, the proof and the sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unweave.record.checks import Check
from unweave.record.proofs import is_included
from unweave.record.verify import check_content, check_signature


def check_sample(
    record: Mapping[str, Any], proof: Mapping[str, Any], content: bytes, public_key: bytes | None = None
) -> list[Check]:
    """Check a record with its signature, and that a proof shows a sample with this content digest in it.

    Without a public key, the signature only shows that the record was not changed since somebody signed it.
    """
    checks = [check_content(record), check_signature(record, public_key)]
    other = [name for name, known in _names_in(record).items() if proof[name] != known]
    words = f"names another {' and '.join(other)} than this record" if other else "is for this record"
    checks.append(Check("proof", not other, words))
    held = is_included(record, proof, content)
    words = "is among those of the request" if held else "with this proof is not among those of the request"
    return [*checks, Check("sample", held, words)]


def _names_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a proof repeats of its record."""
    return {"record": record["hash"], "root": record["forget"]["root"], "count": record["forget"]["count"]}
