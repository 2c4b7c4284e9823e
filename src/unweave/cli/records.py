"""`unweave record`: make keys, show records, and prove that a sample was in one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli.app import app, out_console
from unweave.cli.options import AsJson
from unweave.cli.record_options import ProofsFile, RecordFile, Records, file_of, read_any
from unweave.cli.verifying import PublicKey, verify
from unweave.errors import RunError, UsageError, on_one_line

record_app = typer.Typer(
    help="Show and check deletion records, and prove that a sample was in one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(record_app, name="record")
_HINTS = {"sample": " It must have the content, type and shape that the data set gives it."}


@record_app.command()
def keygen(
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="File for the private key. The public key goes to FILE.pub.")
    ],
) -> None:
    """Make a pair of keys to sign records. Keep the private file secret, and give the public file to verifiers."""
    from unweave.record import generate

    public = generate(out)
    out_console.print(f"Private key: {out}\nPublic key:  {public}", highlight=False, markup=False, soft_wrap=True)


@record_app.command()
def show(
    files: Records,
    as_json: AsJson = False,
) -> None:
    """Print records as text. For a chain, also print how accuracy on kept data drifted."""
    from unweave.lab.report import drift_rows
    from unweave.record import describe, describe_drift

    records = [read_any(path) for path in files]
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
    out: Annotated[Path, typer.Option(help="HTML file to write.")],
) -> None:
    """Write records as one HTML page. For a chain, also show how accuracy on kept data drifted."""
    from unweave.lab.report import write_record_page

    if out.exists():
        raise UsageError(f"{out} already exists. Choose another --out.")
    write_record_page(out, [read_any(path) for path in files])
    out_console.print(f"Page: {out}", highlight=False, markup=False, soft_wrap=True)


record_app.command()(verify)


@record_app.command("prove")
def prove_sample(
    file: RecordFile,
    sample: Annotated[int, typer.Option(min=0, help="Position of the sample in the data set.")],
    out: Annotated[Path, typer.Option(help="File for the proof, to give to the holder of the sample.")],
    proofs: ProofsFile = None,
) -> None:
    """Write the proof that a sample was in a request. It reveals nothing about other samples."""
    from unweave.record import PROOFS_FILE, prove, read_proofs, read_record
    from unweave.storage import write_whole

    record = read_record(file_of(file))
    if out.exists():
        raise UsageError(f"{out} already exists. Choose another --out.")
    proof = prove(record, read_proofs(proofs or file_of(file).parent / PROOFS_FILE), sample)
    write_whole(out, (json.dumps(proof, indent=2) + "\n").encode(), private=True)
    out_console.print(f"Proof: {out}", highlight=False, markup=False, soft_wrap=True)


@record_app.command("check-sample")
def check_sample_of(
    file: RecordFile,
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="Proof that `unweave record prove` wrote.")],
    content: Annotated[
        Path, typer.Argument(metavar="SAMPLE", help="Sample: its file, or its inputs as .npy or .safetensors.")
    ],
    public_key: PublicKey = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Accept a record without a signature. Anyone may have written it.")
    ] = False,
) -> None:
    """Check that your sample was in a request. The exit code is 1 if it was not, or if the record cannot be trusted."""
    from unweave.record import check_sample, digest_of_file, load_public, read_proof

    if public_key and unsigned:
        raise UsageError("--public-key needs a signature, and --unsigned does without one. Give only one of them.")
    key = load_public(public_key) if public_key else None
    record = read_any(file)
    digest = digest_of_file(content, record["forget"]["content"])
    for check in check_sample(record, read_proof(proof), digest, key):
        if check.holds is None and not unsigned:
            raise RunError(
                f"{file_of(file)} is not signed, so anyone may have written it. Ask for a signed "
                "record, or accept this one with --unsigned."
            )
        if check.holds is False:
            raise RunError(f"The sample is not confirmed: {check.name} {check.words}.{_HINTS.get(check.name, '')}")
    words = f"{content} was among the {record['forget']['count']} samples of request {record['request']['id']}."
    out_console.print(on_one_line(f"{_trust(record, key)}{words}"), highlight=False, markup=False, soft_wrap=True)


def _trust(record: dict[str, Any], key: bytes | None) -> str:
    """Return the words that an answer begins with if nobody is known to vouch for the record."""
    if record.get("signature") is None:
        return "Unsigned, so anyone may have written this record: "
    from unweave.record import name_of

    if key is None:
        signer = name_of(record["signature"]["public_key"])
        return f"Signed by the key {signer}, but without --public-key nobody checked whose key that is: "
    return ""
