"""The exact scores of a run on record: a private file, to which the record is bound by a salted digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Any

from unweave.errors import UsageError
from unweave.evaluation import Scores
from unweave.record.checks import Check
from unweave.record.forget_set import SALT_BYTES
from unweave.record.proofs import unhex
from unweave.record.schema import SECTIONS
from unweave.record.sealing import plain
from unweave.storage import COUNT, TEXT, canonical, read_json, require_form, sha256

EXACT_FILE = "exact-scores.json"
KIND = ("unweave-exact-scores", 1)
FORM = {
    "format": TEXT,
    "version": COUNT,
    "salt": TEXT,
    "scores": SECTIONS["scores"],
    "certificate": SECTIONS["certificate"],
    "drift": SECTIONS["drift"][0],
}


def exact_content(scores: Scores, certificate: Mapping[str, Any], drift: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the private file, with a new salt."""
    found: dict[str, Any] = plain({"scores": scores.to_dict(), "certificate": certificate, "drift": drift})
    return {"format": KIND[0], "version": KIND[1], "salt": token_bytes(SALT_BYTES).hex(), **found}


def exact_digest(exact: Mapping[str, Any]) -> str:
    """Return the digest that the record holds. The salt keeps others from guessing the scores."""
    content = {name: exact[name] for name in ("scores", "certificate", "drift")}
    return sha256(unhex(exact["salt"], "salt") + canonical(content))


def read_exact(path: Path) -> dict[str, Any]:
    """Read the private file of exact scores."""
    content: dict[str, Any] = read_json(path)
    require_form(content, FORM, str(path))
    if (content["format"], content["version"]) != KIND:
        raise UsageError(
            f"{path} has the format {content['format']!r}, version {content['version']}, but must have the format "
            f"{KIND[0]!r}, version {KIND[1]}."
        )
    try:
        canonical(content)
    except ValueError as error:
        raise UsageError(f"{path} cannot be hashed: {error}") from error
    return content


def check_exact(record: Mapping[str, Any], exact: Mapping[str, Any] | None) -> Check:
    """Check that the exact scores are those that the record was made from."""
    if record["version"] == 1:
        words = "version 1 has no digest of private scores: it holds exact ones, which may tell who was forgotten"
        return Check("exact scores", None, words)
    if exact is None:
        return Check("exact scores", None, f"not checked: {EXACT_FILE} is missing (it lies beside --proofs)")
    same = exact_digest(exact) == record["scores"]["exact"]
    return Check("exact scores", same, "are those of the record" if same else "differ from those of the record")


def with_exact(record: Mapping[str, Any], exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with its exact numbers in the place of the rounded ones, to compare them with others."""
    drift = [*record["drift"][:-1], exact["drift"]]
    return {**record, "scores": exact["scores"], "certificate": exact["certificate"], "drift": drift}
