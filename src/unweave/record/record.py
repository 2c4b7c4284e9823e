"""The deletion record: what was asked, what was done to which model, and with what evidence, in one JSON file.

``docs/record.md`` describes every entry. What is hashed and signed is the canonical form (sorted keys, no spaces,
UTF-8) of everything except ``hash`` and ``signature``.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unweave.data import EVERY, RETAINED, Partition
from unweave.engine import Cost
from unweave.errors import UsageError, require_type
from unweave.evaluation import Certificate, Metric, Predictions, Scores, certificate_entry, predict
from unweave.record import signing
from unweave.record.forget_set import SALT_BYTES, Content, ForgetSet, salted_split
from unweave.record.proofs import PROOFS_FILE, forgotten_by
from unweave.record.schema import FORMAT, NAMES, require_record
from unweave.record.stated import stated_limits
from unweave.storage import canonical, digest_of, fingerprint, provenance, read_json, sha256, tensor_digests

NAME, SPLIT, TEST_SPLIT = "record.json", "split.json", "test-split.json"
TEXT_LENGTH = 100_000


@dataclass(frozen=True, kw_only=True)
class Request:
    """Who or what is to be forgotten, in words, and how that goes on record.

    ``key`` is the file of an Ed25519 private key that signs the record; ``previous`` the record of the request before,
    which this one continues. ``content`` returns, for a position in the data set, the bytes that stand for the sample
    (for instance those of its file), so that their holder can check that it was in the request; without it the
    sample's input tensors are taken.
    """

    id: str
    text: str = ""
    key: str | os.PathLike[str] | None = None
    previous: str | os.PathLike[str] | None = None
    content: Content | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id.strip():
            raise UsageError(f"The request's id is {self.id!r}, but must be a text that is not empty.")
        if not isinstance(self.text, str) or len(self.id) + len(self.text) > TEXT_LENGTH:
            raise UsageError(f"The request's text must be a text, with its id of at most {TEXT_LENGTH} characters.")
        try:
            (self.id + self.text).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"The request's id and text must be Unicode: {error}") from error

    @classmethod
    def of(
        cls,
        given: Request | Mapping[str, Any] | None,
        model: nn.Module,
        split: Partition,
        test: Partition | None,
        out: str | os.PathLike[str] | None,
    ) -> Request | None:
        """Return the request, which may be given as a mapping, and refuse what cannot go on record before any work."""
        if given is None:
            return None
        if out is None:
            raise UsageError("A deletion record needs a folder to be written to. Give out=.")
        require_type("request", given, (Request, Mapping), "a Request, or a mapping with its id and text")
        try:
            request = given if isinstance(given, Request) else cls(**given)
        except TypeError as error:
            raise UsageError(f"The request cannot be read: {error}. It needs an id.") from error
        if len(split.forget) == 0:
            raise UsageError("The split has no forget samples, so there is nothing to answer a request with.")
        request._check(model, split, test)
        return request

    def _check(self, model: nn.Module, split: Partition, test: Partition | None) -> None:
        if self.key is not None:
            signing.load_private(Path(self.key))
        if self.content is not None:
            ForgetSet.of(split, self.content)  # asks for every sample, so that one that is not there is missed now
        if self.previous is not None:
            before = read_record(Path(self.previous))
            if before["model"]["after"] != fingerprint(model.state_dict()):
                raise UsageError(
                    f"{self.previous} ends with another model than the one given. Unlearn from the model that the "
                    "request before left, or start a new chain."
                )
            _refuse_forgotten(Path(self.previous).parent, before, split, test)


def _refuse_forgotten(folder: Path, before: Mapping[str, Any], split: Partition, test: Partition | None) -> None:
    """Refuse to keep what earlier requests made the model forget, as far as the folder of the last one tells.

    Positions tell nothing where the data set has another size: samples may have been deleted from it since.
    """
    who = f"request {before['request']['id']!r} or one before it"
    if (folder / PROOFS_FILE).exists() and before["split"]["samples"] == len(split.samples):
        again = _kept_of(forgotten_by(folder, split), split)
        if len(again):
            raise UsageError(
                f"{len(again)} samples that {who} made the model forget are kept data of this split (first: sample "
                f"{again[0]}), and would be learned again. Pass what was forgotten: earlier=[split of that request]."
            )
    earlier = forgotten_tests(folder, test) if test is not None else None
    if test is not None and earlier is not None and len(again := _kept_of(earlier, test)):
        raise UsageError(
            f"{len(again)} test samples of what {who} made the model forget count as kept data (first: sample "
            f"{again[0]}). Take them out: test=test.after(test split of that request)."
        )


def _kept_of(earlier: Partition, split: Partition) -> np.ndarray[Any, Any]:
    return np.intersect1d(earlier.rows(*earlier.to_forget), split.rows(*RETAINED))


def forgotten_tests(folder: Path, test: Partition) -> Partition | None:
    """Return the test split of the run in a folder; None where it has none, or one of other test data."""
    file = folder / TEST_SPLIT
    content = read_json(file) if file.exists() else {}
    if isinstance(content, dict) and content.get("samples") != len(test.samples):
        return None
    return Partition.load(file, test.samples)


def read_record(path: Path) -> dict[str, Any]:
    """Read a record whose content is what its hash says; otherwise a `UsageError`. `verify` says more."""
    record = require_record(read_json(path), str(path))
    if record["hash"] != content_hash(record):
        raise UsageError(f"{path} does not match its own hash: it was changed or damaged. Run `unweave record verify`.")
    return record


def content_hash(record: Mapping[str, Any]) -> str:
    """Return the digest of a record's content."""
    return sha256(signed_bytes(record))


def signed_bytes(record: Mapping[str, Any]) -> bytes:
    """Return what is hashed and signed of a record."""
    return canonical({name: entry for name, entry in record.items() if name not in ("hash", "signature")})


def make_record(
    request: Request,
    *,
    config: Mapping[str, Any],
    after: nn.Module,
    split: Partition,
    scores: Scores,
    cost: Cost,
    begun: str,
    device: torch.device,
    certificate: Certificate | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record of a finished run, and the private file with which single samples can be proven."""
    forget, salt = ForgetSet.of(split, request.content), secrets.token_bytes(SALT_BYTES)
    digests = tensor_digests(after.state_dict())
    about = provenance(device)
    previous = None if request.previous is None else read_record(Path(request.previous))
    bound = _bound(certificate, scores, split, device=device, precision=config["precision"])
    content: dict[str, Any] = {
        **FORMAT,
        "request": {"id": request.id, "text": request.text},
        "previous": None if previous is None else {"hash": previous["hash"], "id": previous["request"]["id"]},
        "times": {"begun": begun, "finished": now(), "seconds": cost.seconds},
        "model": {"before": config["model"], "after": digest_of(digests), "tensors": digests},
        "split": {
            "hash": salted_split(split, salt),
            "samples": len(split.samples),
            **{subset: len(split[subset]) for subset in EVERY},
        },
        "forget": {
            "count": len(forget.rows),
            "root": forget.root,
            "content": "tensors" if request.content is None else "bytes",
        },
        "configuration": {name: value for name, value in config.items() if name != "split"},  # unsalted there
        "software": {"commit": about["commit"], **about["versions"]},
        "hardware": about["hardware"],
        "seeds": {"run": config["seed"], "evaluation": 0},
        "scores": scores.to_dict(),
        "cost": cost.to_dict(),
        "certificate": bound,
        "drift": [*(previous["drift"] if previous else []), _drift(request.id, scores)],
        "stated_limits": stated_limits(split, scores, bound, config),
    }
    content = plain(content)
    content["sections"] = {name: sha256(canonical(content[name])) for name in NAMES}
    record = {**content, "hash": content_hash(content)}
    if request.key is not None:
        record["signature"] = signing.sign(signing.load_private(Path(request.key)), signed_bytes(content))
    samples = [
        {"row": row, "salt": own.hex(), "leaf": leaf.hex()}
        for row, own, leaf in zip(forget.rows, forget.salts, forget.leaves, strict=True)
    ]
    return record, {
        "format": "unweave-forget-proofs",
        "version": 1,
        "root": forget.root,
        "split_salt": salt.hex(),
        "samples": samples,
        "forgotten": split.forgotten.tolist(),
    }


def record_files(
    request: Request, *, split: Partition, test: Partition | None, **made_from: Any
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the record of a finished run as a file, and what only its owner should see: proofs and splits."""
    record, proofs = make_record(request, split=split, **made_from)
    private = {PROOFS_FILE: json.dumps(proofs, indent=2) + "\n", SPLIT: split.to_json()}
    if test is not None:
        private[TEST_SPLIT] = test.to_json()
    return {NAME: json.dumps(record, indent=2) + "\n"}, private


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def plain(content: Any) -> Any:
    """Return what JSON can hold: a number that is not finite becomes None."""
    if isinstance(content, Mapping):
        return {str(name): plain(entry) for name, entry in content.items()}
    if isinstance(content, list | tuple):
        return [plain(entry) for entry in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return json.loads(json.dumps(content))


def _bound(certificate: Certificate | None, scores: Scores, split: Partition, **computing: Any) -> dict[str, Any]:
    """Return the upper bound on forget accuracy, or the reason that there is none."""

    def ask(other: nn.Module) -> Predictions:
        return predict(other, split.samples, split.rows("forget"), **computing)

    return certificate_entry(certificate, scores.observed, ask)


def _drift(request: str, scores: Scores) -> dict[str, Any]:
    """Return accuracies before and after this request: the next line of a chain's balance."""
    row: dict[str, Any] = {"id": request}
    for metric in scores.metrics:
        if metric.metric == "accuracy" and metric.subset and metric.value is not None:
            row.setdefault(metric.split, {})[metric.subset] = _change(metric)
    return row


def _change(metric: Metric) -> dict[str, float | None]:
    return {"before": metric.before, "after": metric.value}
