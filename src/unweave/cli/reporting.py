"""`unweave report` and `unweave compare`: results of studies."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, err_console, out_console, say, stop
from unweave.cli.options import AsJson
from unweave.errors import UsageError

STUDY = "study.json"
WIDEST = 10_000  # terminal columns, to measure a table without a limit


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study, or of a run.")],
    against_paper: Annotated[
        bool, typer.Option("--against-paper", help="Show the paper's printed numbers beside ours.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Write the page again whenever the study has news, until Ctrl-C. It reloads itself."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Write tables, figures and one self-contained page of a study to DIR/report.

    \b
    Examples:
      unweave report study
      unweave report study --against-paper
      unweave report study --watch
    """
    if watch:
        _watch(folder, against_paper=against_paper, as_json=as_json)
        return
    from unweave.lab.report import write_report
    from unweave.storage import RUN

    if (folder / RUN).is_file() and not (folder / STUDY).exists():
        _show_run(folder, as_json=as_json)
        return
    done = write_report(folder, against_paper=against_paper)
    for failure in done.failures:
        err_console.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps({"page": str(done.page), "verdict": done.verdict, "failed": list(done.failures)}))
        return
    out_console.print(done.verdict, highlight=False, markup=False)
    out_console.print(f"\nPage: {done.page}", highlight=False, markup=False, soft_wrap=True)


def _watch(folder: Path, *, against_paper: bool, as_json: bool) -> None:
    """Keep the page of a study up to date until Ctrl-C."""
    from unweave.lab.report import watch_report
    from unweave.storage import RUN

    if as_json:
        raise UsageError("--watch does not end, so it prints no JSON. Leave --json or --watch out.")
    if (folder / RUN).is_file() and not (folder / STUDY).exists():
        raise UsageError(f"{folder} is the folder of a finished run, and its page does not change. Leave --watch out.")
    try:
        watch_report(folder, against_paper=against_paper, say=say)
    except KeyboardInterrupt:
        stop(f"Stopped. `unweave report {shlex.quote(str(folder))}` writes the report with its figures.")


def _show_run(folder: Path, *, as_json: bool) -> None:
    """Print the verdict of a single run, whose folder has its page already."""
    from unweave.storage import PAGE, VERDICT

    page, verdict = folder / PAGE, folder / VERDICT
    for file in (page, verdict):
        if not file.is_file():
            raise UsageError(f"{folder} is the folder of a run without {file.name}: an older version wrote it.")
    text = verdict.read_text(encoding="utf-8").strip()
    if as_json:
        typer.echo(json.dumps({"page": str(page), "verdict": text, "failed": []}))
        return
    out_console.print(f"{text}\n\nPage: {page}", highlight=False, markup=False, soft_wrap=True)


@app.command("compare")
def compare_studies(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders of studies.")],
    baseline: Annotated[str, typer.Option(help="Method to compare the others with.")] = "two-stage",
    variants: Annotated[bool, typer.Option("--variants", help="Compare variants too, such as another goal.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the tables (Markdown, LaTeX, CSV) and figures.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods over several studies, with intervals and paired tests, corrected for their number.

    The studies may forget one class each, for example.
    """
    from unweave.lab.report import compare, grid_table, grids, read_results

    studies = [read_results(folder) for folder in folders]
    found = compare(studies, baseline=baseline, variants=variants)
    tables = grids(found)
    if out is not None:
        from unweave.lab.report import write_comparison  # slow to import

        write_comparison(found, studies, out)
    if as_json:
        typer.echo(json.dumps({"studies": found.studies, **{grid.name: grid.records for grid in tables}}))
        return
    for grid in tables:
        table = grid_table(grid)
        needed = out_console.measure(table, options=out_console.options.update(max_width=WIDEST)).minimum
        if needed > out_console.width:  # numbers must stay whole
            table.width = needed
        out_console.print(table, crop=False)
        out_console.print()
    if out is not None:
        out_console.print(f"Tables and figures: {out}", highlight=False, markup=False, soft_wrap=True)
