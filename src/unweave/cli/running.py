"""`unweave demo` and `unweave run`: train, unlearn, evaluate. The work is imported when it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console, say
from unweave.cli.options import (
    AsJson,
    BenchmarkName,
    Compile,
    DataFolder,
    Device,
    OptionValues,
    Precision,
    Small,
    SplitFile,
    TestSplitFile,
    Track,
    Tuned,
)
from unweave.cli.run_options import (
    After,
    CheckpointSeconds,
    CheckpointSteps,
    GoalName,
    KeepData,
    Key,
    LimitValues,
    LossesFile,
    MaxMemory,
    MethodName,
    MicroBatch,
    NoGuard,
    Profile,
    RequestId,
    RequestText,
    Resume,
    RunFolder,
    RunSeed,
    SettingValues,
    Shard,
    WatchRun,
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")] = Path("unweave-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds to run.")] = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Forget a digit in a minute: train on built-in data, unlearn in four ways, compare."""
    from unweave.lab import MARK, run_demo
    from unweave.lab.report import accuracy_table
    from unweave.runs import absolute, refuse_existing

    place = absolute(out)
    if place.exists() and not (place / MARK).exists():
        refuse_existing(out)
    done = run_demo(place, seeds=seeds, device=device, say=say)
    if as_json:
        typer.echo(json.dumps(done.scores))
        return
    out_console.print(f"\n{done.entanglement}\n", highlight=False, markup=False)
    out_console.print(accuracy_table(done.scores))
    out_console.print(f"\n{done.meaning()}\n", highlight=False)
    out_console.print(f"Picture: {out / 'forget-losses.png'}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def run(
    benchmark: BenchmarkName,
    out: RunFolder,
    method: MethodName = "two-stage",
    profile: Profile = None,
    seed: RunSeed = 0,
    goal: GoalName = None,
    reference: LossesFile = None,
    tuned: Tuned = None,
    settings: SettingValues = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    device: Device = None,
    precision: Precision = "auto",
    compile_: Compile = "auto",
    micro_batch: MicroBatch = None,
    max_memory: MaxMemory = None,
    shard: Shard = None,
    keep_data: KeepData = "auto",
    limits: LimitValues = None,
    no_guard: NoGuard = False,
    checkpoint_seconds: CheckpointSeconds = None,
    checkpoint_steps: CheckpointSteps = None,
    request_id: RequestId = None,
    request: RequestText = "",
    key: Key = None,
    after: After = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    watch: WatchRun = False,
    track: Track = "",
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    r"""Train a benchmark's model, unlearn with one method, evaluate, and write everything to a folder.

    \b
    Examples:
      unweave run digits --out runs/first
      unweave run digits --method ga --set epochs=3 --out runs/ga
      unweave run digits --request-id 2031-17 --key office.key --out runs/17
    """
    asked = dict(locals())
    from unweave.cli.benchmark_run import run_benchmark

    run_benchmark(**asked)
