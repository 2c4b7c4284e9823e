"""The deletion record: what was asked, what was done to which model, and with what evidence, in one JSON file.

``docs/record.md`` describes every entry. What is hashed and signed is the canonical form (sorted keys, no spaces,
UTF-8) of everything except ``hash`` and ``signature``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.data import EVERY, Partition
from unweave.engine import Cost
from unweave.evaluation import Certificate, Metric, Predictions, Scores, certificate_entry, predict
from unweave.record.forget_set import SALT_BYTES, ForgetSet, salted_split
from unweave.record.forgotten import SPLIT, TEST_SPLIT
from unweave.record.proofs import PROOFS_FILE, proofs_of
from unweave.record.request import Request
from unweave.record.schema import FORMAT
from unweave.record.sealing import plain, read_record, sealed
from unweave.record.stated import stated_limits
from unweave.storage import digest_of, provenance, tensor_digests

NAME = "record.json"


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
    return sealed(plain(content), request.key), proofs_of(forget, salt, split)


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
