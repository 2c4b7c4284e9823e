"""Write the record of a finished run into its folder."""

from __future__ import annotations

import contextlib
import os
from copy import copy
from dataclasses import replace
from pathlib import Path

from torch import nn

from unweave.errors import RunError, UsageError
from unweave.evaluation import observe
from unweave.record.deletion_request import DeletionRequest
from unweave.record.exact import with_exact
from unweave.record.finished import FinishedRun
from unweave.record.forget_set import ForgetSet
from unweave.record.proofs import PROOFS_FILE, read_proofs, unhex
from unweave.record.record import NAME, Secrets, files_of, fresh_secrets, make_record
from unweave.record.verify import check_beside, check_model
from unweave.runtime import processes
from unweave.storage import (
    HISTORY,
    PAGE,
    RUN,
    SCORES,
    VERDICT,
    configuration_file,
    find_weights,
    fingerprint,
    read_weights,
    sync_folder,
    write_whole,
)

TELLING = (RUN, SCORES, HISTORY, VERDICT, PAGE)  # of the run: exact numbers, and a hash of the split without salt


def write_record(
    folder: str | os.PathLike[str],
    request: DeletionRequest,
    run: FinishedRun,
    *,
    original: nn.Module,
    key: str | os.PathLike[str] | None = None,
    previous: str | os.PathLike[str] | None = None,
) -> Path:
    """Write the record of a finished run into its folder, at once or later.

    Nothing is written unless the parts belong to the run of the folder. The private files come first and the record
    last, so that a record is never without its proofs. After a crash, call it again: salts that are on disk already
    are used again. Files of the run with exact numbers become readable by their owner only.

    Args:
        folder: The folder of the run.
        request: What was asked.
        run: The parts of the run: from `FinishedRun.here` or, later, from `FinishedRun.read`.
        original: The model before unlearning.
        key: File of the private key that signs the record, in place of the request's.
        previous: The record that this one continues, in place of the request's.

    Returns:
        The path of the record.

    Raises:
        UsageError: The folder has a record, or a part belongs to another run.
        RunError: The files cannot be written.

    >>> import tempfile, torch, unweave as uw
    >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
    >>> split = uw.Split(data, forget=[0], adjacent=[1, 2], remote=[3, 4, 5])
    >>> model, folder = nn.Linear(6, 2), tempfile.mkdtemp() + "/run"
    >>> result = uw.unlearn(model, split, "ga", out=folder, guard=None)
    >>> run = FinishedRun.read(folder, model=result.model, split=split, begun="2031-05-04T09:00:00+00:00")
    >>> write_record(folder, DeletionRequest(id="2031-17"), run, original=model).name
    'record.json'
    """
    target = Path(folder)
    asked = replace(request, key=key or request.key, previous=previous or request.previous)
    _require_run(target, run, original)
    asked.check(original, run.split, run.test)
    if run.scores.observed is None:
        run = _observed(run)
    record, proofs, exact = make_record(asked, run, secrets=_secrets(target, asked, run))
    beside = check_beside(with_exact(record, exact), target)
    if find_weights(target) is not None:
        beside.append(check_model(record, read_weights(target, run.model)))
    for check in beside:
        if not check.holds:
            raise UsageError(f"The run given is not the one in {target}: {check.name} {check.words}.")
    public, private = files_of(record, proofs, exact, run)
    processes.first(lambda: _write_files(target, public, private))
    return target / NAME


def _require_run(folder: Path, run: FinishedRun, original: nn.Module) -> None:
    """Refuse a folder that has a record or no run, and parts that belong to another run."""
    if not configuration_file(folder).exists():
        raise UsageError(f"{folder} has no {RUN}, so it is not the folder of a finished run.")
    if (folder / NAME).exists():
        raise UsageError(f"{folder / NAME} exists already. A record is never overwritten.")
    if run.config.get("model") != fingerprint(original.state_dict()):
        raise UsageError(
            f"The run in {folder} began with another model than original=. Give the model before unlearning."
        )
    if run.config.get("split") != run.split.hash:
        raise UsageError(f"The run in {folder} unlearned another split than the one given ({run.split}).")
    if "judged_on" in run.config:
        raise UsageError(f"The run in {folder} was scored on another split than it unlearned. It cannot have a record.")
    if ("test" in run.scores) != (run.test is not None):
        had, given = ("test data", "no test split") if "test" in run.scores else ("no test data", "a test split")
        raise UsageError(f"The run in {folder} was scored on {had}, but {given} was given (test=).")
    if run.test is not None:
        scored = {subset: found["samples"] for subset, found in run.scores["test"].items()}
        if scored != {subset: len(run.test[subset]) for subset in scored}:
            raise UsageError(f"The run in {folder} was scored on another test split than the one given ({run.test}).")


def _observed(run: FinishedRun) -> FinishedRun:
    """Run the model over the data again, for scores that come from a file."""
    scores = copy(run.scores)
    scores.observed = observe(run.model, run.split, device=run.device, precision=run.config["precision"], task=run.task)
    return replace(run, scores=scores)


def _secrets(folder: Path, request: DeletionRequest, run: FinishedRun) -> Secrets:
    """Return new salts, or those that an interrupted call left in the folder."""
    file = folder / PROOFS_FILE
    if not file.exists():
        return fresh_secrets(request, run.split)
    private = read_proofs(file)
    if [sample["row"] for sample in private["samples"]] == run.split.forget.tolist():
        salts = [unhex(sample["salt"], "salt") for sample in private["samples"]]
        forget = ForgetSet.of(run.split, request.content, salts=salts)
        if forget.root == private["root"]:
            return forget, unhex(private["split_salt"], "split_salt")
    raise UsageError(
        f"{file} proves other samples than those of this request. Its record may still need it: move it to another "
        "folder first."
    )


def _write_files(folder: Path, public: dict[str, str], private: dict[str, str]) -> None:
    """Write the private files, then the record."""
    try:
        for name, text in private.items():
            write_whole(folder / name, text.encode(), private=True)
        for name in TELLING:
            with contextlib.suppress(FileNotFoundError):
                (folder / name).chmod(0o600)
        sync_folder(folder)
        for name, text in public.items():
            write_whole(folder / name, text.encode())
        sync_folder(folder)
    except OSError as error:
        raise RunError(f"The record cannot be written to {folder}: {error}") from error
