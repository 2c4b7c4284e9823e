"""`unweave init`: a request file to fill in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console
from unweave.errors import RunError, UsageError


@app.command()
def init(
    model: Annotated[str, typer.Option(help="Checkpoint: a folder or Hub name, or MODULE:FUNCTION with --weights.")],
    train: Annotated[str, typer.Option(help="Training data: files, a folder, or a name on the Hub.")],
    weights: Annotated[str | None, typer.Option(help="Safetensors file, for a model of MODULE:FUNCTION.")] = None,
    out: Annotated[Path, typer.Option(help="File to write. It must be new.")] = Path("request.yaml"),
) -> None:
    r"""Look at a model and its data, and write a request file with comments.

    Editors that know YAML schemas complete and check its keys by the schema that is written beside it.

    \b
    Examples:
      unweave init --model ckpt --train train.parquet
      unweave init --model ckpt --train train.parquet --out requests/17.yaml
    """
    from unweave.requests import SCHEMA, Request, schema_of
    from unweave.storage import write_whole

    if out.exists():
        raise UsageError(f"{out} exists already. Choose another --out, or remove it.")
    schema = out.parent / SCHEMA
    if schema.exists() and not _is_ours(schema):
        raise UsageError(f"{schema} is not a schema of unweave. Choose another folder for --out.")
    text = Request.draft(model, train, weights=weights, home=out.parent)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(schema, (json.dumps(schema_of(Request), indent=2) + "\n").encode())
        write_whole(out, text.encode())
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    out_console.print(
        f"Written to {out}. Fill in `forget`, then:\n\n    unweave inspect {out}\n    unweave unlearn {out}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _is_ours(schema: Path) -> bool:
    from unweave.requests import Request, schema_of
    from unweave.storage import read_json

    content = read_json(schema)
    return isinstance(content, dict) and content.get("title") == schema_of(Request)["title"]
