"""`unweave demo` and `unweave run`: train, unlearn, evaluate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from unweave._version import __version__
from unweave.api import Result, check_reference, check_request, refuse_existing, unfinished, unlearn
from unweave.cli.app import app, out_console, say, stop
from unweave.cli.beginning import Beginning, begin
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
    benchmark_of,
    pairs,
    words,
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
from unweave.engine import Limits, check_trackers
from unweave.errors import UsageError
from unweave.evaluation import Watch
from unweave.lab import MARK, run_demo
from unweave.lab.benchmarks import Benchmark, profile_of_folder
from unweave.lab.report import accuracy_table
from unweave.methods import Method, all_methods
from unweave.record import NAME, Request
from unweave.runs import kept_original
from unweave.runtime import processes
from unweave.storage import read_json


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")] = Path("unweave-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds to run.")] = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Forget a digit in a minute: train on built-in data, unlearn in four ways, compare."""
    if out.exists() and not (out / MARK).exists():
        refuse_existing(out)
    done = run_demo(out, seeds=seeds, device=device, say=say)
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
    """Train a benchmark's model, unlearn with one method, evaluate, and write everything to a folder."""
    source = benchmark_of(benchmark, data=data, options=options, small=small, tuned=tuned)
    chosen = source.method(method)
    values = _values(source, chosen, profile=profile, tuned=tuned, goal=goal, given=pairs(settings or []))
    losses = _losses(reference, chosen, values, profile=profile)
    check_trackers(words(track))
    asked = _request(request_id, request, key, after)
    # With --small the numbers mean nothing, so a collapse should not end the run.
    guard = None if no_guard or small else Limits.parse(pairs(limits or []))
    computing: dict[str, Any] = {"device": device, "precision": precision, "compile": compile_}
    check_request(**computing, out=out, resume=resume)
    wanted: dict[str, Any] = {"split": split, "test_split": test_split, "after": after, "other": bool(split or options)}
    start = begin(source, out, **wanted, keep_data=keep_data, resume=resume, seed=seed, computing=computing)
    memory = {"micro_batch": micro_batch, "max_memory": max_memory, "shard": shard}
    saving = {"resume": resume, "checkpoint_seconds": checkpoint_seconds, "checkpoint_steps": checkpoint_steps}
    watching = {"limits": guard, "watch": Watch() if watch else None, "track": words(track)}
    how: dict[str, Any] = {"profile": profile, "request": asked, **memory, **saving, **watching, **values}
    _show(_unlearn(start, chosen, losses, out, **how), out, as_json=as_json)


def _values(
    source: Benchmark,
    method: Method,
    *,
    profile: str | None,
    tuned: Path | None,
    goal: str | None,
    given: Mapping[str, str],
) -> dict[str, Any]:
    """Return the settings for the method: those of the benchmark, updated with those given."""
    if goal and not _has_goals(method):
        having = ", ".join(name for name, other in all_methods().items() if _has_goals(other))
        raise UsageError(f"--goal is for methods with a setting goal ({having}), not for {method.name}.")
    if tuned and profile != (its := profile_of_folder(tuned)):
        raise UsageError(f"--tuned {tuned} is for the profile {its}. Add --profile {its}.")
    return {**source.settings_for(method, profile), **given, **({"goal": goal} if goal else {})}


def _has_goals(method: Method) -> bool:
    return any(row["name"] == "goal" for row in method.settings.describe())


def _losses(path: Path | None, method: Method, values: Mapping[str, Any], *, profile: str | None) -> Any:
    """Return the losses given as a reference. Wrong settings raise here, before anything is trained."""
    configured = method.configure(values, profile=profile)
    if path is None:
        return None
    losses = _read_losses(path)
    check_reference(losses, configured)
    return losses


def _read_losses(path: Path) -> Any:
    """Read cross-entropy losses from a file, and name an entry that cannot be one."""
    losses = read_json(path)
    for place, loss in enumerate(losses if isinstance(losses, list) else []):
        if not isinstance(loss, int | float) or isinstance(loss, bool):
            raise UsageError(f"{path}: entry {place} is {loss!r}, but must be a number.")
        if loss < 0:
            raise UsageError(f"{path}: entry {place} is {loss}, but a cross-entropy loss is at least 0.")
    return losses


def _request(name: str | None, text: str, key: Path | None, after: Path | None) -> Request | None:
    if name is not None:
        return Request(id=name, text=text, key=key, previous=after / NAME if after else None)
    if text or key:
        raise UsageError("--request and --key need --request-id, which gives the run a record.")
    return None


def _unlearn(start: Beginning, method: Method, losses: Any, out: Path, **how: Any) -> Result:
    """Unlearn. If Ctrl-C stops it, print how to resume. Remove the kept original once the run is finished."""
    about = {**start.benchmark.about(start.task), "unweave": __version__, "torch": torch.__version__}
    try:
        return unlearn(
            start.original,
            start.train,
            method,
            seed=start.seed,
            out=out,
            test=start.test,
            earlier=start.earlier,
            initial=start.initial,
            reference=start.briefly if losses is None else losses,
            about=about,
            **start.computing,
            **how,
        )
    except KeyboardInterrupt:
        stop("Stopped. Run the same command with --resume to resume." if unfinished(out).exists() else "Stopped.")
    finally:
        if processes.is_first() and not unfinished(out).exists():
            kept_original(out).unlink(missing_ok=True)


def _show(result: Result, out: Path, *, as_json: bool) -> None:
    if as_json:
        scores = result.scores.to_dict() if result.scores else {}
        typer.echo(json.dumps({**scores, "cost": result.cost.to_dict(), "out": str(out)}))
        return
    out_console.print(str(result.scores), highlight=False, markup=False)
    out_console.print(
        f"\nWritten to {out}. Unlearning took {result.cost.seconds:.1f} s.", highlight=False, markup=False
    )
