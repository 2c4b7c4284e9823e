"""`unweave unlearn`: a checkpoint, data and what to forget become an unlearned checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from unweave.cli.app import app, out_console, stop
from unweave.cli.options import AsJson
from unweave.cli.request_flags import takes_request
from unweave.cli.run_options import Resume
from unweave.errors import UsageError
from unweave.requests import Request
from unweave.runs import unfinished


@app.command()
@takes_request
def unlearn(request: Request, resume: Resume = False, as_json: AsJson = False) -> None:
    """Make your own model forget part of its data: a checkpoint, a table, and what to forget.

    Give a request file, or the same by flags.
    """
    if request.out is None:
        raise UsageError("The request has no out. Give the folder to write as --out, or as a key of the file.")
    out = Path(request.out)
    try:
        result = request.run(resume=resume)
    except KeyboardInterrupt:
        stop("Stopped. Run the same command with --resume to resume." if unfinished(out).exists() else "Stopped.")
    if as_json:
        about = {**result.scores.to_dict(), "verdict": result.verdict.to_dict(), "out": str(out)}
        typer.echo(json.dumps(about))
        return
    out_console.print(f"{result.verdict}\n\nWritten to {out}.", highlight=False, markup=False, soft_wrap=True)
