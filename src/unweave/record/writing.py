"""Put a finished run on record: from its result, or later from its folder."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from unweave.data import Partition
from unweave.engine import Cost
from unweave.errors import UsageError
from unweave.evaluation import Scores, observe
from unweave.record.certificates import certificate_of, model_after
from unweave.record.record import NAME, record_files
from unweave.record.request import Request
from unweave.runtime import pick_device, processes
from unweave.storage import fingerprint, read_json, read_tensors, sync_folder, write_whole


class Finished(Protocol):
    """A finished run: what `unlearn` returns."""

    model: nn.Module
    original: nn.Module
    split: Any
    test: Any
    config: Mapping[str, Any]
    cost: Cost
    begun: str
    folder: Path | None

    @property
    def scores(self) -> Scores:
        """What was measured."""


@dataclass(frozen=True)
class _Parts:
    """What a record is made of."""

    model: nn.Module
    original: nn.Module
    split: Partition
    test: Partition | None
    config: Mapping[str, Any]
    cost: Cost
    begun: str
    folder: Path
    scores: Scores


def write(
    run: Finished | str | os.PathLike[str],
    request: Request | Mapping[str, Any],
    *,
    key: str | os.PathLike[str] | None = None,
    original: nn.Module | None = None,
    split: Partition | None = None,
    test: Partition | None = None,
) -> Path:
    """Write the deletion record of a finished run into its folder.

    Nothing of the run is lost if this fails: call it again, later too, with the folder.

    Args:
        run: The result of `unlearn` with ``out=``, or the folder that it wrote.
        request: Who or what was to be forgotten: a `Request`, or a mapping with its id and text.
        key: The file of an Ed25519 private key that signs the record. None: the request's own, if it has one.
        original: With a folder: the model that was unlearned from.
        split: With a folder: the split that was unlearned with.
        test: With a folder: the split of the test data, if the run had one.

    Returns:
        The file of the record.

    Raises:
        UsageError: The run has no folder, the folder is on record already, or something does not fit the run.

    >>> write("nowhere", Request(id="17"))
    Traceback (most recent call last):
    unweave.errors.UsageError: A record from a folder needs the original model and the split: pass original= and split=.
    """
    asked = Request.of(request)
    asked = asked if key is None else replace(asked, key=key)
    parts = _of_folder(Path(run), original, split, test) if isinstance(run, str | os.PathLike) else _of_result(run)
    if "judged_on" in parts.config:
        raise UsageError("A record is about the split that was unlearned with, and these scores are on another.")
    asked.check(parts.original, parts.split, parts.test)
    if (parts.folder / NAME).exists():
        raise UsageError(f"{parts.folder / NAME} exists: this run is on record already.")
    device = pick_device(None)
    scores = _with_observed(parts, device)
    certificate = certificate_of(
        parts.config, lambda phase: model_after(parts.folder, copy.deepcopy(parts.original), phase)
    )
    public, private = record_files(
        asked,
        config=parts.config,
        after=parts.model,
        split=parts.split,
        test=parts.test,
        scores=scores,
        cost=parts.cost,
        begun=parts.begun,
        device=device,
        certificate=certificate,
    )
    processes.first(lambda: _write(parts.folder, public, private))
    return parts.folder / NAME


def _write(folder: Path, public: Mapping[str, str], private: Mapping[str, str]) -> None:
    for name, text in private.items():
        write_whole(folder / name, text.encode(), private=True)
    for name, text in public.items():  # last, so that a record is there with everything that belongs to it
        write_whole(folder / name, text.encode())
    sync_folder(folder)


def _of_result(run: Finished) -> _Parts:
    if run.folder is None:
        raise UsageError("A record needs the folder of its run. Pass out= to unlearn.")
    return _Parts(run.model, run.original, run.split, run.test, run.config, run.cost, run.begun, run.folder, run.scores)


def _of_folder(folder: Path, original: nn.Module | None, split: Partition | None, test: Partition | None) -> _Parts:
    if original is None or split is None:
        raise UsageError("A record from a folder needs the original model and the split: pass original= and split=.")
    config, about, scores = (read_json(folder / name) for name in ("config.json", "run.json", "scores.json"))
    if config.get("model") != fingerprint(original.state_dict()):
        raise UsageError(f"The run in {folder} began with another model than the one given as original=.")
    if config.get("split") != split.hash:
        raise UsageError(f"The run in {folder} was made with another split than the one given as split=.")
    model = copy.deepcopy(original)
    model.load_state_dict(read_tensors(folder / "model.safetensors"))
    measured = Scores.from_dict({name: entry for name, entry in scores.items() if name not in ("cost", "stages")})
    return _Parts(
        model, original, split, test, config, Cost(**about["cost"]), about["begun"], folder.resolve(), measured
    )


def _with_observed(parts: _Parts, device: torch.device) -> Scores:
    """Return the scores with the model's outputs, which a certificate is computed from."""
    if parts.scores.observed is not None:
        return parts.scores
    seen = observe(parts.model, parts.split, parts.test, device=device, precision=parts.config["precision"])
    return Scores(parts.scores.values, parts.scores.metrics, observed=seen)
