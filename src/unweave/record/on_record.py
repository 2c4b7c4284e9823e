"""Put a finished run on record: from its result, or later from its folder."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from unweave.data import Partition
from unweave.engine import Cost
from unweave.errors import UsageError, as_path, require_type, short
from unweave.evaluation import Scores
from unweave.record.certificates import certificate_of, model_after
from unweave.record.deletion_request import DeletionRequest
from unweave.record.finished import FinishedRun
from unweave.record.writing import write_record
from unweave.runtime import pick_device
from unweave.storage import RUN, read_configuration, read_json, read_weights


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


def write(
    run: Finished | str | os.PathLike[str],
    request: DeletionRequest | Mapping[str, Any],
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

    >>> write("nowhere", DeletionRequest(id="17"))
    Traceback (most recent call last):
    unweave.errors.UsageError: A record from a folder needs the original model and the split: pass original= and split=.
    """
    asked = DeletionRequest.of(request)
    asked = asked if key is None else replace(asked, key=key)
    if isinstance(run, str | os.PathLike):
        if original is None or split is None:
            raise UsageError(
                "A record from a folder needs the original model and the split: pass original= and split=."
            )
        _require_parts(original, split, test)
        return write_record(run, asked, _of_folder(as_path("run", run), original, split, test), original=original)
    if not isinstance(getattr(run, "folder", None), Path | None) or not isinstance(
        getattr(run, "model", None), nn.Module
    ):
        raise UsageError(f"run must be what unlearn returned, or the path of its folder, not {short(run)}.")
    if run.folder is None:
        raise UsageError("A record needs the folder of its run. Pass out= to unlearn.")
    device = pick_device(None)
    finished = FinishedRun.here(
        config=run.config,
        scores=run.scores,
        cost=run.cost,
        model=run.model,
        split=run.split,
        test=run.test,
        certificate=_certificate(run.config, run.folder, run.original),
        device=device,
        begun=run.begun,
    )
    return write_record(run.folder, asked, finished, original=run.original)


def _require_parts(original: Any, split: Any, test: Any) -> None:
    require_type("original", original, nn.Module, "a torch nn.Module")
    require_type("split", split, Partition, "the Split that was unlearned with")
    require_type("test", test, (Partition, type(None)), "the Split of the test data")


def _of_folder(folder: Path, original: nn.Module, split: Partition, test: Partition | None) -> FinishedRun:
    """Return the run of a folder, with everything that the folder tells."""
    model = copy.deepcopy(original)
    model.load_state_dict(read_weights(folder, model))
    config = read_configuration(folder)
    about = read_json(folder / RUN) if (folder / RUN).exists() else {}
    known = {name: about[name] for name in ("begun", "finished", "software", "hardware") if name in about}
    certificate = _certificate(config, folder, original)
    return FinishedRun.read(folder, model=model, split=split, test=test, certificate=certificate, **known)


def _certificate(config: Mapping[str, Any], folder: Path, original: nn.Module) -> Any:
    return certificate_of(config, lambda phase: model_after(folder, copy.deepcopy(original), phase))
