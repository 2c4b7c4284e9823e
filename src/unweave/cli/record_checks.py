"""What `unweave record verify` does: check a record, its chain, its folder, the data and the scores."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from torch import Tensor

from unweave.api import Split
from unweave.cli.options import chosen_options
from unweave.cli.record_options import file_of, read_any
from unweave.engine import Compute
from unweave.errors import RunError, UsageError, on_one_line
from unweave.evaluation import Scores, evaluate
from unweave.lab.benchmarks import find_benchmark
from unweave.record import (
    EXACT_FILE,
    PROOFS_FILE,
    Check,
    certificate_of,
    check_beside,
    check_chain,
    check_content,
    check_counts,
    check_exact,
    check_forget,
    check_model,
    check_original,
    check_scores,
    check_signature,
    check_split,
    check_times,
    load_public,
    read_exact,
    read_proofs,
    with_exact,
)
from unweave.runs import load_weights
from unweave.storage import find_weights, read_weights

if TYPE_CHECKING:
    from unweave.lab.audit import Subject


def check_record(
    *,
    file: Path,
    public_key: Path | None,
    previous: list[Path] | None,
    model: Path | None,
    original: Path | None,
    benchmark: str | None,
    split: Path | None,
    test_split: Path | None,
    source: str | None,
    data: str | None,
    options: list[str] | None,
    small: bool,
    proofs: Path | None,
    recompute: bool,
    device: str | None,
    as_json: bool,
) -> None:
    """Check a record, with the arguments of `unweave record verify`."""
    record, folder = read_any(file), file_of(file).parent
    key = load_public(public_key) if public_key else None
    checks = [check_content(record), check_signature(record, key), check_counts(record), check_times(record)]
    checks += check_chain(record, [read_any(path) for path in previous or []], key)
    if recompute and model is None:
        model = _folder_with_weights(folder)
    private, chosen = proofs or folder / PROOFS_FILE, chosen_options(options, small)
    check, whole = _with_exact(record, private.parent / EXACT_FILE)
    checks += [check, *_check_files(whole, folder, model=model, original=original)]
    if benchmark and not (model or source):
        train = _train_split(benchmark, folder, split=split, data=data, options=chosen)
        checks += _check_data(record, train, private)
    elif benchmark or source or recompute:
        from unweave.lab.audit import load_subject

        where: dict[str, Any] = {"benchmark": benchmark, "data": data, "options": chosen, "source": source}
        try:
            subject = load_subject(model, split=split, test_split=test_split, **where)
        except UsageError:
            _print_checks(checks, as_json)  # they may explain the error
            raise
        checks += _check_data(record, subject.train, private)
        if recompute:
            checks.append(check_scores(whole, _scores_again(record, subject, original, device)))
    _print_checks(checks, as_json)


def _with_exact(record: dict[str, Any], file: Path) -> tuple[Check, dict[str, Any]]:
    """Return the check of the private file of exact scores, and the record with them if they are its own."""
    exact = read_exact(file) if file.exists() else None
    check = check_exact(record, exact)
    return check, with_exact(record, exact) if check.holds and exact is not None else record


def _check_files(record: dict[str, Any], folder: Path, *, model: Path | None, original: Path | None) -> list[Check]:
    """Check the weights after unlearning, the files beside the record and, if given, the weights before."""
    found = []
    if weights_at := model or (folder if find_weights(folder) else None):
        found.append(_check_weights("model after", weights_at, lambda weights: check_model(record, weights)))
    else:
        found.append(Check("model after", None, "not checked: there are no weights beside the record (--model)"))
    found += check_beside(record, folder)
    if original:
        found.append(_check_weights("model before", original, lambda weights: check_original(record, weights)))
    return found


def _train_split(
    benchmark: str, folder: Path, *, split: Path | None, data: str | None, options: dict[str, Any]
) -> Split:
    """Return the training split without loading a model."""
    from unweave.lab.audit import load_splits

    known = find_benchmark(benchmark, data=data, options=options)
    train, _ = load_splits(known, folder, split=split, asked=options)
    return train


def _folder_with_weights(folder: Path) -> Path:
    if find_weights(folder) is None:
        raise UsageError(
            f"--recompute needs the model after unlearning, but {folder} has no weights. Give it with --model."
        )
    return folder


def _scores_again(record: dict[str, Any], subject: Subject, original: Path | None, device: str | None) -> Scores:
    """Compute the scores in the precision of the record."""
    used = record["configuration"].get("precision")
    return evaluate(
        subject.model,
        subject.train,
        subject.test,
        original=load_weights(copy.deepcopy(subject.model), original) if original else None,
        # By the record's own settings: run.json is signed by nobody.
        certificate=certificate_of(record["configuration"], subject.after_phase) or subject.certificate,
        compute=Compute(device, precision=used if used in ("float32", "bfloat16") else "auto"),
    )


def _check_data(record: dict[str, Any], train: Split, proofs: Path) -> list[Check]:
    """Check the split and the forget samples with the private salts."""
    if not proofs.exists():
        return [
            Check(name, None, f"not checked: {PROOFS_FILE} is missing (--proofs)")
            for name in ("split", "forget samples")
        ]
    private = read_proofs(proofs)
    found = [check_split(record, train, private)]
    if record["forget"]["content"] != "tensors":
        return [
            *found,
            Check(
                "forget samples",
                None,
                "not checked: their content is bytes, not tensors (check_forget in Python takes content=)",
            ),
        ]
    return [*found, check_forget(record, train, private)]


def _check_weights(name: str, path: Path, check: Callable[[Mapping[str, Tensor]], Check]) -> Check:
    """Check weights. A file that cannot be read fails the check."""
    try:
        return check(read_weights(path))
    except UsageError as error:
        return Check(name, False, str(error))


def _print_checks(checks: list[Check], as_json: bool) -> None:
    broken = [check for check in checks if check.holds is False]
    marks = {True: "ok  ", False: "FAIL", None: "–   "}
    if as_json:
        rows = [{"name": check.name, "holds": check.holds, "words": check.words} for check in checks]
        typer.echo(json.dumps({"holds": not broken, "checks": rows}))
    else:
        for check in checks:
            typer.echo(on_one_line(f"{marks[check.holds]}  {check.name}: {check.words}"))
    if broken:
        raise RunError(f"The record does not hold: {broken[0].name}: {broken[0].words.rstrip('.')}.")
