"""`unweave warm`: compile ahead what runs use."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console
from unweave.cli.options import BenchmarkName, DataFolder, Device, OptionValues, Precision, Small
from unweave.cli.run_options import MethodName, Profile, SettingValues

CodeFile = Annotated[Path, typer.Option(help="File to write. A file that is there is replaced.")]


@app.command()
def warm(
    benchmark: BenchmarkName,
    out: CodeFile,
    method: MethodName = "two-stage",
    profile: Profile = None,
    settings: SettingValues = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    device: Device = None,
    precision: Precision = "auto",
) -> None:
    r"""Compile what runs of a method use on this GPU, and write it to a file that moves with a project.

    Runs use the file if the environment variable UNWEAVE_COMPILED names it. The file is code: name only files that you
    or somebody you trust wrote, and that nobody else can change. A relative name is looked up where a run starts, so an
    absolute one is safer.

    \b
    Examples:
      unweave warm cifar100 --method two-stage --out compiled.code
      UNWEAVE_COMPILED=compiled.code unweave run cifar100 --out runs/first
    """
    from unweave.api import warm as write
    from unweave.cli.options import benchmark_of, pairs
    from unweave.engine import Compute

    source = benchmark_of(benchmark, data=data, options=options, small=small)
    chosen = source.method(method)
    values = {**source.settings_for(chosen, profile), **pairs(settings or [])}
    configured = chosen.configure(values, profile=profile)
    compute = Compute(device, precision=precision)  # type: ignore[arg-type]
    compute.check()
    task = source.load()
    given = {"initial": partial(source.initial, 0), **source.given(task)}
    path = write(source.initial(0), task.train, configured.with_given(**given), out=out, compute=compute)
    out_console.print(
        f"{path}: {path.stat().st_size / 1e6:.1f} MB. UNWEAVE_COMPILED={path.absolute()} lets runs use it.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
