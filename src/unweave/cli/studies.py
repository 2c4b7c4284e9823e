"""`unweave study` and `unweave studies`: many runs in one folder. The work is imported when it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, listing, out_console
from unweave.cli.options import (
    AsJson,
    BenchmarkName,
    Cluster,
    Compile,
    DataFolder,
    Device,
    OptionValues,
    Precision,
    Small,
    Track,
    Tuned,
    Workers,
)

NamedStudy = Annotated[
    str | None,
    typer.Argument(metavar="STUDY", help="Name of a study (see `unweave studies`), or all. Default: comparison."),
]
StudyFolder = Annotated[Path, typer.Option(help="Folder of the study. The same command resumes it.")]
MethodNames = Annotated[
    str | None,
    typer.Option(help="Names of methods, joined by commas, or all, instead of a named study."),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, …")]
FirstSeed = Annotated[int, typer.Option(min=0, help="First seed, if the seeds before it run elsewhere.")]
Profiles = Annotated[str, typer.Option(help="Profiles, joined by commas. Default: each method's first.")]
GridValues = Annotated[
    list[str] | None, typer.Option(metavar="KEY=A,B,…", help="Values of a setting to try. Repeatable.")
]
Adjacency = Annotated[
    str,
    typer.Option(
        help="How adjacent data is chosen, joined by commas: classes, neighbours, remote-to-adjacent:SHARE, "
        "adjacent-to-remote:SHARE."
    ),
]
WatchStudy = Annotated[bool, typer.Option("--watch", help="Log accuracies of the three subsets during the runs.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Start nothing after this time, and stop at a checkpoint."),
]
KeepModels = Annotated[
    str,
    typer.Option(
        help="Weights to keep after the comparison: all, originals (with retrained models, which cells added later are "
        "compared with), or none."
    ),
]
OriginalsOf = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of another study. Use its original models instead of training new ones."),
]


@app.command()
def study(
    benchmark: BenchmarkName,
    out: StudyFolder,
    named: NamedStudy = None,
    methods: MethodNames = None,
    seeds: Seeds = 3,
    first_seed: FirstSeed = 0,
    profiles: Profiles = "",
    tuned: Tuned = None,
    grid: GridValues = None,
    adjacency: Adjacency = "classes",
    watch: WatchStudy = False,
    track: Track = "",
    workers: Workers = "1",
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    keep_models: KeepModels = "all",
    originals: OriginalsOf = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    device: Device = None,
    precision: Precision = "auto",
    compile_: Compile = "auto",
    as_json: AsJson = False,
) -> None:
    r"""Run a named study, or methods × seeds, on a benchmark into one folder.

    The same command resumes a study that was stopped. Several studies may share a folder; their common cells run once.

    \b
    Examples:
      unweave study digits --out study
      unweave study digits alpha --seeds 3 --workers 2 --out study
      unweave study request.yaml --methods original,ft,ga --out study
    """
    asked = dict(locals())
    from unweave.cli.study_run import study_of

    study_of(**asked)


@app.command()
def studies(as_json: AsJson = False) -> None:
    """List the named studies."""
    from unweave.lab.study import PRESETS

    if as_json:
        typer.echo(json.dumps([{"name": preset.name, "summary": preset.summary} for preset in PRESETS.values()]))
        return
    every = ("all", "All of these in one folder; common cells run once.")
    out_console.print(listing([*((preset.name, preset.summary) for preset in PRESETS.values()), every]))
