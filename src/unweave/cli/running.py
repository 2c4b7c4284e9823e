"""`unweave demo` and `unweave run`: train, unlearn, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from unweave._version import __version__
from unweave.api import (
    Result,
    Split,
    check_reference,
    check_request,
    load_weights,
    refuse_existing,
    unfinished,
    unlearn,
)
from unweave.cli.app import (
    AsJson,
    BenchmarkName,
    Compile,
    DataFolder,
    Device,
    Options,
    Precision,
    Small,
    SplitFile,
    TestSplitFile,
    Track,
    Tuned,
    app,
    benchmark_of,
    out_console,
    pairs,
    say,
    stop,
    words,
)
from unweave.data import Partition, as_keep_data
from unweave.engine import Limits, check_trackers
from unweave.errors import UsageError
from unweave.evaluation import Watch
from unweave.lab import MARK, run_demo
from unweave.lab.benchmarks import Benchmark, Task, profile_of_folder
from unweave.lab.report import accuracy_table
from unweave.methods import Method, all_methods
from unweave.record import NAME, Request, forgotten_by, forgotten_tests
from unweave.runs import kept_original, to_bytes
from unweave.runtime import processes
from unweave.storage import read_json, write_whole


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the scores and the picture.")] = Path("unweave-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times, with other random numbers.")] = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Forget a digit in a minute: train on embedded data, unlearn in four ways, compare."""
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
    out: Annotated[Path, typer.Option(help="Folder to write; must not hold anything yet.")],
    method: Annotated[str, typer.Option(help="A name from `unweave methods`.")] = "two-stage",
    profile: Annotated[str | None, typer.Option(help="Named set of values of the method.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of training and unlearning.")] = 0,
    goal: Annotated[
        str | None, typer.Option(help="Of the method unweave: erase, or retrain (as if never trained).")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="For --goal retrain: a JSON list of the losses of data never trained on. Default: a brief training "
            "without the forget data tells."
        ),
    ] = None,
    tuned: Tuned = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; repeatable."),
    ] = None,
    data: DataFolder = None,
    options: Options = None,
    small: Small = False,
    device: Device = None,
    precision: Precision = "auto",
    compile_: Compile = "auto",
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Most samples to differentiate at once; same results, less memory.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Most memory to take of the GPU, such as 8GB; batches are cut to fit.")
    ] = None,
    shard: Annotated[
        bool | None,
        typer.Option("--shard/--no-shard", help="Cut the weights among the processes that a launcher started (FSDP2)."),
    ] = None,
    keep_data: Annotated[
        str, typer.Option(help="Keep the data on the device: auto (where it fits), device (always) or host (never).")
    ] = "auto",
    limits: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="KEY=VALUE", help="A limit of the guard against collapse; repeatable."),
    ] = None,
    no_guard: Annotated[bool, typer.Option("--no-guard", help="Do not stop a run that destroys the model.")] = False,
    checkpoint_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Time between checkpoints. Default: 60, or 20 times as long as writing one takes."),
    ] = None,
    checkpoint_steps: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints, at most.")] = None,
    request_id: Annotated[str | None, typer.Option(help="Put the run on record under this id (record.json).")] = None,
    request: Annotated[str, typer.Option(help="Who or what is to be forgotten, in words, for the record.")] = "",
    key: Annotated[Path | None, typer.Option(help="Private key that signs the record (unweave record keygen).")] = None,
    after: Annotated[
        Path | None,
        typer.Option(help="The run before this: begin with its model; what it forgot stays forgotten."),
    ] = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Log accuracies of the three subsets while it works.")] = False,
    track: Track = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run of this folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a benchmark's model, unlearn with one method, evaluate, and write everything to a folder."""
    task_source = benchmark_of(benchmark, data=data, options=options, small=small, tuned=tuned)
    chosen = task_source.method(method)
    if goal and not _has_goals(chosen):
        having = ", ".join(name for name, other in all_methods().items() if _has_goals(other))
        raise UsageError(f"--goal is for methods that have a setting goal ({having}); {chosen.name} has none.")
    values = {**task_source.settings_for(chosen, profile), **pairs(settings or []), **({"goal": goal} if goal else {})}
    if tuned and profile != (its := profile_of_folder(tuned)):
        raise UsageError(f"--tuned {tuned} is for the profile {its}. Add --profile {its}.")
    configured = chosen.configure(values, profile=profile)  # wrong settings are said before anything is trained
    losses = _read_losses(reference) if reference else None
    if reference:
        check_reference(losses, configured)
    check_trackers(words(track))
    asked = _request(request_id, request, key, after)
    # With --small the numbers mean nothing, and a model that fell apart is none the less a run from end to end.
    guard = None if no_guard or small else Limits.parse(pairs(limits or []))
    fast: dict[str, Any] = {"precision": precision, "compile": compile_}
    check_request(device=device, **fast, out=out, resume=resume)
    task = task_source.load()
    for part in (task.train, task.test):
        part.samples.keep_data = as_keep_data(keep_data)
    train, test, earlier = task.train, task.test if not split else None, []
    if split:
        train = Split.load(split, task.train.samples)
    if test_split:
        test = Split.load(test_split, task.test.samples)
    if after:
        earlier = [forgotten_by(after, train)]
        test = _test_after(after, train, earlier[0], test, said=bool(split or options))
        original = load_weights(task_source.initial(seed), after).eval()
    else:
        original = _original(task_source, task, out, resume=resume, seed=seed, device=device, **fast)

    def briefly() -> Result:
        kept = train.after(*earlier) if earlier else train
        return task_source.train_briefly(original, kept, seed=seed, device=device, **fast)

    try:
        result = unlearn(
            original,
            train,
            chosen,
            profile=profile,
            seed=seed,
            out=out,
            resume=resume,
            test=test,
            earlier=earlier,
            initial=lambda: task_source.initial(seed),
            reference=briefly if losses is None else losses,
            device=device,
            micro_batch=micro_batch,
            max_memory=max_memory,
            shard=shard,
            limits=guard,
            request=asked,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_steps=checkpoint_steps,
            watch=Watch() if watch else None,
            track=words(track),
            about={**task_source.about(task), "unweave": __version__, "torch": torch.__version__},
            **fast,
            **values,
        )
    except KeyboardInterrupt:
        stop("Stopped. The same command with --resume goes on." if unfinished(out).exists() else "Stopped.")
    finally:
        if processes.is_first() and not unfinished(out).exists():
            kept_original(out).unlink(missing_ok=True)
    if as_json:
        scores = result.scores.to_dict() if result.scores else {}
        typer.echo(json.dumps({**scores, "cost": result.cost.to_dict(), "out": str(out)}))
        return
    out_console.print(str(result.scores), highlight=False, markup=False)
    out_console.print(
        f"\nWritten to {out} in {result.cost.seconds:.1f} s of unlearning.", highlight=False, markup=False
    )


def _request(name: str | None, text: str, key: Path | None, after: Path | None) -> Request | None:
    if name is not None:
        return Request(id=name, text=text, key=key, previous=after / NAME if after else None)
    if text or key:
        raise UsageError("--request and --key belong to a record. Give it an id with --request-id.")
    return None


def _original(benchmark: Benchmark, task: Task, out: Path, *, resume: bool, seed: int, **computing: Any) -> nn.Module:
    """Train the original, and keep it as long as the run is unfinished; a resumed run takes the one that was kept."""
    kept = kept_original(out)
    if resume and kept.exists():
        return load_weights(benchmark.initial(seed), kept).eval()
    original = benchmark.train(task, seed=seed, **computing)
    processes.first(lambda: _keep(original, kept))
    return original


def _keep(model: nn.Module, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, to_bytes(model.state_dict()))


def _test_after(folder: Path, train: Split, earlier: Partition, test: Split | None, *, said: bool) -> Split | None:
    """Return the test data without what the run before forgot. ``said``: somebody said what to forget now."""
    if not said and train.forget.tolist() == earlier.forget.tolist():
        raise UsageError(f"{folder} forgot these very samples. Say what to forget now: --option or --split.")
    before = forgotten_tests(folder, test) if test else None
    return test.after(before) if test and before else test


def _has_goals(method: type[Method]) -> bool:
    return any(row["name"] == "goal" for row in method.describe())


def _read_losses(path: Path) -> Any:
    """Read given losses, of cross-entropy as everything is that the command line runs; an odd entry is named."""
    losses = read_json(path)
    for place, loss in enumerate(losses if isinstance(losses, list) else []):
        if not isinstance(loss, int | float) or isinstance(loss, bool):
            raise UsageError(f"{path}: entry {place} is {loss!r}, no number.")
        if loss < 0:
            raise UsageError(f"{path}: entry {place} is {loss}; a cross-entropy loss is 0 at least.")
    return losses
