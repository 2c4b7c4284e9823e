"""`unweave study` and `unweave report`: many runs, one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli.app import (
    AsJson,
    BenchmarkName,
    DataFolder,
    Device,
    Options,
    Small,
    app,
    benchmark_of,
    err_console,
    out_console,
    pairs,
    say,
    words,
)
from unweave.errors import RunError
from unweave.report import accuracy_table, write_report
from unweave.study import plan, run_study


@app.command()
def study(
    benchmark: BenchmarkName,
    out: Annotated[Path, typer.Option(help="The study's folder; the same command goes on where it stopped.")],
    methods: Annotated[str, typer.Option(help="Names from `unweave methods`, joined by commas, or all.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, …")] = 3,
    profiles: Annotated[str, typer.Option(help="Profiles, joined by commas. Default: each method's first.")] = "",
    grid: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B,…", help="Values of a setting to try; repeatable.")
    ] = None,
    data: DataFolder = None,
    options: Options = None,
    small: Small = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Run methods × seeds on a benchmark into one folder, with one table. Can be stopped and started again."""
    source = benchmark_of(benchmark, data=data, options=options, small=small)
    axes = {key: value.split(",") for key, value in pairs(grid or []).items()}
    cells = plan(words(methods), seeds=seeds, profiles=words(profiles), grid=axes)
    store = run_study(source, cells, out, device=device, say=say)
    rows: dict[str, list[Any]] = {}
    for cell in cells:
        if store.is_done(cell):
            rows.setdefault(f"{cell.method} {cell.variant}".strip(), []).append(store.scores_of(cell.name))
    if as_json:
        typer.echo(json.dumps({"out": str(out), "table": str(store.table), "failed": store.failures()}))
    elif rows:
        out_console.print(accuracy_table(rows))
        out_console.print(f"\nTable: {store.table}", highlight=False, markup=False, soft_wrap=True)
    failed = store.failures()
    for failure in failed:
        name = f"{failure['method']} {failure['variant']}".strip()
        err_console.print(f"failed: {name} seed {failure['seed']}: {failure['error']}", markup=False, soft_wrap=True)
    if failed:
        raise RunError(f"{len(failed)} cells failed; the others are in {store.table}.")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `unweave study` wrote.")],
    against_paper: Annotated[
        bool, typer.Option("--against-paper", help="Put the paper's printed numbers beside ours.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write tables, figures and one self-contained page of a study into DIR/report."""
    done = write_report(folder, against_paper=against_paper)
    for failure in done.failures:
        err_console.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps({"page": str(done.page), "verdict": done.verdict, "failed": list(done.failures)}))
        return
    out_console.print(done.verdict, highlight=False, markup=False)
    out_console.print(f"\nPage: {done.page}", highlight=False, markup=False, soft_wrap=True)
