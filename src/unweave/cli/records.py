"""`unweave record`: make keys, show and check deletion records, and prove that a sample was in one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.api import Split
from unweave.cli.app import (
    AsJson,
    DataFolder,
    Device,
    Options,
    Small,
    SplitFile,
    TestSplitFile,
    app,
    chosen_options,
    out_console,
)
from unweave.cli.auditing import OfBenchmark, Original, Source
from unweave.errors import RunError, UsageError
from unweave.evaluation import Scores, evaluate
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.report import drift_rows, write_record_page
from unweave.record import (
    NAME,
    PROOFS_FILE,
    Check,
    check_beside,
    check_chain,
    check_content,
    check_forget,
    check_model,
    check_original,
    check_scores,
    check_signature,
    check_split,
    describe,
    describe_drift,
    digest_of_file,
    generate,
    is_included,
    load_public,
    printable,
    prove,
    read_proof,
    read_proofs,
    read_record,
    require_record,
)
from unweave.runs import WEIGHTS, certificate_of, load_weights
from unweave.storage import read_json, read_tensors, write_whole

if TYPE_CHECKING:
    from unweave.lab.audit import Subject

record_app = typer.Typer(
    help="Show and check deletion records; prove that a sample was in one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(record_app, name="record")

RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="A record.json, or the folder of a run.")]
Records = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Records, or folders of runs, oldest first.")]
ProofsFile = Annotated[
    Path | None, typer.Option("--proofs", help=f"The private {PROOFS_FILE}. Default: beside the record.")
]


def _file(path: Path) -> Path:
    return path / NAME if path.is_dir() else path


def _read(path: Path) -> dict[str, Any]:
    """Read a record that may have been changed: that is what verify and show are there to say."""
    return require_record(read_json(_file(path)), str(_file(path)))


@record_app.command()
def keygen(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the private key; FILE.pub is public.")],
) -> None:
    """Make a key that signs records. Keep the private file secret, and give the public one to whoever verifies."""
    public = generate(out)
    out_console.print(f"Private key: {out}\nPublic key:  {public}", highlight=False, markup=False, soft_wrap=True)


@record_app.command()
def show(
    files: Records,
    as_json: AsJson = False,
) -> None:
    """Print records for a person to read; of a chain, also how kept data drifted over its requests."""
    records = [_read(path) for path in files]
    rows = drift_rows(records)
    if as_json:
        typer.echo(json.dumps({"records": records, "drift": rows}))
        return
    for record in records:
        typer.echo(describe(record) + "\n")
    if len(rows) > 1:
        typer.echo(describe_drift(rows))


@record_app.command()
def page(
    files: Records,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")],
) -> None:
    """Write records as one page to hand to a person; of a chain, with how kept data drifted."""
    if out.exists():
        raise UsageError(f"{out} exists already. Choose another --out.")
    write_record_page(out, [_read(path) for path in files])
    out_console.print(f"Page: {out}", highlight=False, markup=False, soft_wrap=True)


@record_app.command()
def verify(
    file: RecordFile,
    public_key: Annotated[Path | None, typer.Option(help="Whose signature it must have (PEM).")] = None,
    previous: Annotated[
        list[Path] | None, typer.Option(help="The record before it, then the one before that; repeatable.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model after: safetensors, or the folder of a run. Default: beside the record."),
    ] = None,
    original: Original = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: Source = None,
    data: DataFolder = None,
    options: Options = None,
    small: Small = False,
    proofs: ProofsFile = None,
    recompute: Annotated[bool, typer.Option("--recompute", help="Compute the scores again and compare.")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Check a record: content, signature, chain; given them, the model, the data, the scores. Ends with 1 if not.

    Of a folder, the weights and files beside the record are checked too.
    """
    record = _read(file)
    key = load_public(public_key) if public_key else None
    checks = [check_content(record), check_signature(record, key)]
    checks += check_chain(record, [_read(path) for path in previous or []], key)
    folder = _file(file).parent
    if recompute and model is None:
        model = _folder_with_weights(folder)
    if weights_at := model or (folder if (folder / WEIGHTS).exists() else None):
        checks.append(_check_weights("model after", weights_at, lambda weights: check_model(record, weights)))
    else:
        checks.append(Check("model after", None, f"not checked: there is no {WEIGHTS} beside the record (--model)"))
    checks += check_beside(record, folder)
    if original:
        checks.append(_check_weights("model before", original, lambda weights: check_original(record, weights)))
    chosen = chosen_options(options, small)
    if benchmark and not (model or source):
        from unweave.lab.audit import load_splits

        known = find_benchmark(benchmark, data=data, options=chosen)
        train, _ = load_splits(known, folder, split=split, asked=chosen)
        checks += _check_data(record, train, proofs or folder / PROOFS_FILE)
    elif benchmark or source or recompute:
        from unweave.lab.audit import load_subject

        try:
            subject = load_subject(
                model,
                benchmark=benchmark,
                split=split,
                test_split=test_split,
                data=data,
                options=chosen,
                source=source,
            )
        except UsageError:
            _print_checks(checks, as_json)  # what was found so far, which may be why
            raise
        checks += _check_data(record, subject.train, proofs or folder / PROOFS_FILE)
        if recompute:
            checks.append(check_scores(record, _scores_again(record, subject, original, device)))
    _print_checks(checks, as_json)


def _folder_with_weights(folder: Path) -> Path:
    if not (folder / WEIGHTS).exists():
        raise UsageError(f"--recompute needs the model after, and {folder} has no {WEIGHTS}. Give it with --model.")
    return folder


def _scores_again(record: dict[str, Any], subject: Subject, original: Path | None, device: str | None) -> Scores:
    """Compute the scores in the precision in which they were computed for the record."""
    used = record["configuration"].get("precision")
    return evaluate(
        subject.model,
        subject.train,
        subject.test,
        original=load_weights(copy.deepcopy(subject.model), original) if original else None,
        # By the record's configuration: config.json is signed by nobody.
        certificate=certificate_of(record["configuration"], subject.after_phase) or subject.certificate,
        device=device,
        precision=used if used in ("float32", "bfloat16") else "auto",
    )


def _check_data(record: dict[str, Any], train: Split, proofs: Path) -> list[Check]:
    """Check the split and the forget samples, which only the holder of the private salts can."""
    if not proofs.exists():
        return [Check(name, None, f"needs {PROOFS_FILE} (--proofs)") for name in ("split", "forget samples")]
    private = read_proofs(proofs)
    found = [check_split(record, train, private)]
    if record["forget"]["content"] != "tensors":
        return [*found, Check("forget samples", None, "their content is not that of tensors: check it in Python")]
    return [*found, check_forget(record, train, private)]


def _check_weights(name: str, path: Path, check: Any) -> Check:
    """Check weights; a file that cannot even be read is not the one of the record."""
    try:
        found: Check = check(read_tensors(path / WEIGHTS if path.is_dir() else path))
    except UsageError as error:
        return Check(name, False, str(error))
    return found


def _print_checks(checks: list[Check], as_json: bool) -> None:
    broken = [check for check in checks if check.holds is False]
    marks = {True: "ok  ", False: "FAIL", None: "–   "}
    if as_json:
        rows = [{"name": check.name, "holds": check.holds, "words": check.words} for check in checks]
        typer.echo(json.dumps({"holds": not broken, "checks": rows}))
    else:
        for check in checks:
            typer.echo(printable(f"{marks[check.holds]}  {check.name}: {check.words}"))
    if broken:
        raise RunError(printable(f"The record does not hold: {broken[0].name}: {broken[0].words.rstrip('.')}."))


@record_app.command("prove")
def prove_sample(
    file: RecordFile,
    sample: Annotated[int, typer.Option(min=0, help="The sample's position in the data set.")],
    out: Annotated[Path, typer.Option(help="File for the proof, to be handed to the sample's holder.")],
    proofs: ProofsFile = None,
) -> None:
    """Write the proof that a sample was in a request. It reveals nothing about the other samples."""
    record = read_record(_file(file))
    if out.exists():
        raise UsageError(f"{out} exists already. Choose another --out.")
    proof = prove(record, read_proofs(proofs or _file(file).parent / PROOFS_FILE), sample)
    write_whole(out, (json.dumps(proof, indent=2) + "\n").encode())
    out_console.print(f"Proof: {out}", highlight=False, markup=False, soft_wrap=True)


@record_app.command("check-sample")
def check_sample(
    file: RecordFile,
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="What `unweave record prove` wrote.")],
    content: Annotated[
        Path, typer.Argument(metavar="SAMPLE", help="The sample: its file, or its inputs as .npy or .safetensors.")
    ],
) -> None:
    """Check that your sample was in a request. Ends with 1 if it was not."""
    record = read_record(_file(file))
    digest = digest_of_file(content, record["forget"]["content"])
    if not is_included(record, read_proof(proof), digest):
        raise RunError(
            f"{content} with this proof is not among the samples of request {record['request']['id']!r}. It must be as "
            "the data set gives it, in the same type and shape, or it is another."
        )
    words = f"{content} was among the {record['forget']['count']} samples of request {record['request']['id']}."
    out_console.print(printable(words), highlight=False, markup=False, soft_wrap=True)
