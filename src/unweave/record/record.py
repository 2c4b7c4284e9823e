"""The deletion record: what was asked, what was done to which model, and with what evidence, in one JSON file.

``docs/record.md`` describes every entry. What is hashed and signed is the canonical form (sorted keys, no spaces,
UTF-8) of everything except ``hash`` and ``signature``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Any, TypeAlias

from torch import nn

from unweave.data import EVERY, Partition
from unweave.evaluation import Metric, Predictions, Scores, certificate_entry, predict
from unweave.record.deletion_request import DeletionRequest
from unweave.record.exact import EXACT_FILE, exact_content, exact_digest
from unweave.record.finished import FinishedRun
from unweave.record.forget_set import SALT_BYTES, ForgetSet, salted_split
from unweave.record.forgotten import SPLIT, TEST_SPLIT
from unweave.record.proofs import PROOFS_FILE, proofs_of
from unweave.record.rounding import published_bound, published_drift, published_scores
from unweave.record.schema import FORMAT
from unweave.record.sealing import plain, read_record, sealed
from unweave.record.stated import stated_limits
from unweave.storage import digest_of, tensor_digests

NAME = "record.json"
Secrets: TypeAlias = "tuple[ForgetSet, bytes]"
Texts: TypeAlias = "dict[str, str]"


def make_record(
    request: DeletionRequest, run: FinishedRun, *, secrets: Secrets | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the record of a finished run, and the contents of its private files of proofs and of exact scores."""
    config, scores, split = run.config, run.scores, run.split
    forget, salt = secrets or fresh_secrets(request, split)
    digests = tensor_digests(run.model.state_dict())
    previous = None if request.previous is None else read_record(Path(request.previous))
    exact = exact_content(scores, _bound(run), _drift(request.id, scores))
    shown = published_scores(scores)
    bound = published_bound(exact["certificate"], len(forget.rows))
    content: dict[str, Any] = {
        **FORMAT,
        "request": {"id": request.id, "text": request.text},
        "previous": None if previous is None else {"hash": previous["hash"], "id": previous["request"]["id"]},
        "times": {"begun": run.begun, "finished": run.finished, "seconds": run.cost.seconds},
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
        "configuration": {name: value for name, value in config.items() if name != "split"},  # that hash has no salt
        "software": run.software,
        "hardware": run.hardware,
        "seeds": {"run": config["seed"], "evaluation": 0},
        "scores": {**shown, "exact": exact_digest(exact)},
        "cost": run.cost.to_dict(),
        "certificate": bound,
        "drift": [*(previous["drift"] if previous else []), published_drift(request.id, shown["metrics"])],
        "stated_limits": stated_limits(split, scores, bound, config, unknown=run.unknown),
    }
    return sealed(plain(content), request.key), proofs_of(forget, salt, split), exact


def fresh_secrets(request: DeletionRequest, split: Partition) -> Secrets:
    """Return the forget samples, each with a new salt, and a new salt for the split."""
    return ForgetSet.of(split, request.content), token_bytes(SALT_BYTES)


def files_of(
    record: Mapping[str, Any], proofs: Mapping[str, Any], exact: Mapping[str, Any], run: FinishedRun
) -> tuple[Texts, Texts]:
    """Return the text of the record file, and the texts of the private files: proofs, exact scores and splits."""
    private = {PROOFS_FILE: _text(proofs), EXACT_FILE: _text(exact), SPLIT: run.split.to_json()}
    if run.test is not None:
        private[TEST_SPLIT] = run.test.to_json()
    return {NAME: _text(record)}, private


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _bound(run: FinishedRun) -> dict[str, Any]:
    """Return the upper bound on forget accuracy, or the reason that there is none."""

    def ask(other: nn.Module) -> Predictions:
        rows, precision = run.split.rows("forget"), run.config["precision"]
        return predict(other, run.split.samples, rows, device=run.device, precision=precision, task=run.task)

    return certificate_entry(run.certificate, run.scores.observed, ask)


def _drift(request: str, scores: Scores) -> dict[str, Any]:
    """Return the accuracies before and after this request, by split and subset."""
    row: dict[str, Any] = {"id": request}
    for metric in scores.metrics:
        if metric.metric == "accuracy" and metric.subset and metric.value is not None:
            row.setdefault(metric.split, {})[metric.subset] = _change(metric)
    return row


def _change(metric: Metric) -> dict[str, float | None]:
    return {"before": metric.before, "after": metric.value}
