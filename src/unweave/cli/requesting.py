"""`unweave unlearn` and `unweave inspect`: a checkpoint, data and what to forget become an unlearned checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unweave.cli.app import app, err_console, out_console, say, stop
from unweave.cli.options import AsJson
from unweave.cli.request_flags import takes_request
from unweave.cli.run_options import Resume
from unweave.errors import UsageError
from unweave.requests import Request

if TYPE_CHECKING:
    from unweave.api import Result

PageFile = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Page to write, with small pictures.")]
RowsFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File for the row numbers that match, for --forget rows:FILE elsewhere."),
]


@app.command()
@takes_request
def unlearn(request: Request, resume: Resume = False, as_json: AsJson = False) -> None:
    r"""Make your own model forget part of its data: a checkpoint, a table, and what to forget.

    Give a request file, or the same by flags. With --resume, a run that was stopped goes on, and one that is finished
    stays as it is; so a job scheduler can repeat one command.

    \b
    Examples:
      unweave unlearn --model ckpt --train train.parquet --forget ids.txt --out runs/17
      unweave unlearn --model ckpt --train 'data/*.csv' --forget "person_id = 17" --out runs/17
      unweave unlearn request.yaml --seed 1 --out runs/18 --resume
      unweave unlearn --after runs/17 --forget more-ids.txt --out runs/19
    """
    if request.out is None:
        raise UsageError("The request has no out. Give the folder to write as --out, or as a key of the file.")
    from unweave.cli.progress_lines import ProgressLines
    from unweave.requests import is_finished, record_later
    from unweave.runs import unfinished

    out = Path(request.out)
    if resume and is_finished(request):
        record_later(request)
        _show_finished(out, as_json=as_json)
        return
    try:
        result = request.run(resume=resume, callbacks=[ProgressLines()])
    except KeyboardInterrupt:
        stop("Stopped. Run the same command with --resume to resume." if unfinished(out).exists() else "Stopped.")
    if as_json:
        about = {**result.scores.to_dict(), "verdict": result.verdict.to_dict(), "out": str(out)}
        typer.echo(json.dumps(about))
        return
    out_console.print(f"{_verdict(result)}\n", highlight=False, markup=False, soft_wrap=True)
    out_console.print(_before_and_after(result))
    _show_paths(out)


@app.command()
@takes_request
def inspect(request: Request, page: PageFile = None, rows: RowsFile = None, as_json: AsJson = False) -> None:
    r"""Look at a request before anything runs: what matches, who is at risk, what to expect, what it costs.

    It takes the arguments of `unweave unlearn` and names everything that would be refused. Then the exit code is 2.

    \b
    Examples:
      unweave inspect --model ckpt --train train.parquet --forget "person_id = 17"
      unweave inspect request.yaml --page request.html
      unweave inspect request.yaml --rows rows.txt
    """
    if rows is not None and rows.exists():
        raise UsageError(f"{rows} exists already. Choose another file for --rows.")
    found = request.inspect()
    if page is not None:
        found.write_page(page)
    if rows is not None and found.rows:
        from unweave.storage import write_whole

        write_whole(rows, "".join(f"{row}\n" for row in found.rows).encode(), private=True)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        out_console.print(str(found), highlight=False, markup=False, soft_wrap=True)
        for file, name in ((page, "Page"), (rows if found.rows else None, "Row numbers")):
            if file is not None:
                out_console.print(f"\n{name}: {file}", highlight=False, markup=False, soft_wrap=True)
    if found.refused:
        raise typer.Exit(2)


def _verdict(result: Result) -> str:
    """Return the verdict without its table, which is printed below it."""
    lines = (line for line in str(result.verdict).splitlines() if not line.startswith("  "))
    return "\n".join(line.removesuffix(" Accuracy before and after:") for line in lines)


def _before_and_after(result: Result) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column(f"{result.task.correct if result.task else 'accuracy'} in %")
    for name in ("samples", "before", "after"):
        table.add_column(name, justify="right")
    for row in result.verdict.rows:
        before = "–" if row["before"] is None else f"{100 * row['before']:.1f}"
        table.add_row(f"{row['split']} {row['subset']}", f"{row['samples']:,}", before, f"{100 * row['after']:.1f}")
    return table


def _show_finished(out: Path, *, as_json: bool) -> None:
    from unweave.storage import VERDICT, read_json

    say(f"The run at {out} is finished: nothing is left to do.")
    if as_json:
        typer.echo(json.dumps({**read_json(out / "scores.json"), "out": str(out)}))
        return
    out_console.print((out / VERDICT).read_text(), highlight=False, markup=False, soft_wrap=True)
    _show_paths(out)


def _show_paths(out: Path) -> None:
    """Print what was written, each with its path."""
    from unweave.record import NAME
    from unweave.requests import RESOLVED
    from unweave.storage import MODEL, PAGE, WEIGHTS

    kinds = {MODEL: "Model", WEIGHTS: "Weights", PAGE: "Page", NAME: "Record", RESOLVED: "Request"}
    err_console.print()
    for name, kind in kinds.items():
        if (out / name).exists():
            out_console.print(f"{kind + ':':<9}{out / name}", highlight=False, markup=False, soft_wrap=True)
