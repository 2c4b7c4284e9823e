"""What `unweave run` does: train or load the original, unlearn, evaluate, write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer

from unweave import record
from unweave._version import __version__
from unweave.api import Result, unlearn
from unweave.cli.app import out_console, say, stop
from unweave.cli.beginning import Beginning, begin
from unweave.cli.options import (
    benchmark_of,
    pairs,
    words,
)
from unweave.data import as_keep_data
from unweave.engine import Callback, Checkpoints, Compute, Limits, Note, Watch
from unweave.engine import Track as Tracking
from unweave.errors import UsageError
from unweave.evaluation import AnswerScores
from unweave.lab.benchmarks import Benchmark, keep_answers, profile_of_folder
from unweave.methods import Method, all_methods, require_reference
from unweave.record import NAME
from unweave.requests import Request
from unweave.runs import absolute, check_folder, drop_original, tidy, unfinished
from unweave.runtime import processes
from unweave.storage import read_json


def run_benchmark(
    *,
    benchmark: str,
    out: Path,
    method: str,
    profile: str | None,
    seed: int,
    goal: str | None,
    reference: Path | None,
    tuned: Path | None,
    settings: list[str] | None,
    data: str | None,
    options: list[str] | None,
    small: bool,
    device: str | None,
    precision: str,
    compile_: str,
    micro_batch: int | None,
    max_memory: str | None,
    shard: bool | None,
    keep_data: str,
    limits: list[str] | None,
    no_guard: bool,
    checkpoint_seconds: float | None,
    checkpoint_steps: int | None,
    request_id: str | None,
    request: str,
    key: Path | None,
    after: Path | None,
    split: Path | None,
    test_split: Path | None,
    watch: bool,
    track: str,
    resume: bool,
    as_json: bool,
) -> None:
    """Run a method on a benchmark, with the arguments of `unweave run`."""
    source = benchmark_of(benchmark, data=data, options=options, small=small, tuned=tuned)
    chosen = source.method(method)
    values = _values(source, chosen, profile=profile, tuned=tuned, goal=goal, given=pairs(settings or []))
    configured = chosen.configure(values, profile=profile)  # wrong settings are named before anything is trained
    losses = None if reference is None else _losses_for(configured, reference)
    asked = _request(request_id, request, key, after)
    resume = resume and (unfinished(out).exists() or out.exists())  # without a run to resume, begin
    guard = None if no_guard or small else Limits.parse(pairs(limits or []))  # a collapse should not end --small
    compute = Compute(
        device,
        precision=precision,  # type: ignore[arg-type]
        compile=compile_,  # type: ignore[arg-type]
        micro_batch=micro_batch,
        max_memory=max_memory,
        shard=shard,
        keep_data=as_keep_data(keep_data),
    )
    going = [Checkpoints(checkpoint_seconds, checkpoint_steps), Tracking(*words(track)), *([Watch()] if watch else [])]
    _check_all(going, compute, out, resume=resume)
    wanted: dict[str, Any] = {"split": split, "test_split": test_split, "after": after, "other": bool(split or options)}
    start = begin(source, out, **wanted, resume=resume, seed=seed, computing=compute.working)
    how = _How(compute, guard, going, resume, asked, profile or next(iter(chosen.profiles)))
    _show(start, _unlearn(start, configured, losses, out, how), out, compute, as_json=as_json)


@dataclass(frozen=True)
class _How:
    """How a run computes, what goes along with it, and what it answers."""

    compute: Compute
    guard: Limits | None
    callbacks: list[Callback]
    resume: bool
    request: Request | None
    profile: str


def _values(
    source: Benchmark,
    method: type[Method],
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


def _has_goals(method: type[Method]) -> bool:
    return any(row["name"] == "goal" for row in method.describe())


def _check_all(callbacks: Sequence[Callback], compute: Compute, out: Path, *, resume: bool) -> None:
    """Raise an error for what cannot work, before anything is trained."""
    for callback in callbacks:
        callback.check()
    compute.check()
    processes.first(lambda: tidy(out, original=True))
    processes.first(lambda: check_folder(out, resume=resume))


def _losses_for(method: Method, path: Path) -> Any:
    """Return the losses that a file gives a method as its reference."""
    losses = _read_losses(path)
    if getattr(method, "goal", None) != "retrain":
        raise UsageError("A reference was given, but only the method unweave reads it, with the goal retrain.")
    require_reference(losses)
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


def _unlearn(start: Beginning, method: Method, losses: Any, out: Path, how: _How) -> Result:
    """Unlearn, and say how to resume if it is stopped. The original is kept as long as the run is unfinished."""
    about = {"profile": how.profile, **start.benchmark.about(start.task)}
    about |= {"trained_epochs": start.benchmark.recipe.epochs, "unweave": __version__, "torch": torch.__version__}
    split = start.train.after(*start.earlier) if start.earlier else start.train
    if how.request:
        how.request.check(start.original, split, start.test)
    try:
        result = unlearn(
            start.original,
            split,
            method.with_given(
                initial=start.initial,
                reference=start.briefly if losses is None else losses,
                **start.benchmark.given(start.task),
            ),
            test=start.test,
            seed=start.seed,
            out=out,
            resume=how.resume,
            compute=how.compute,
            guard=how.guard,
            callbacks=[*how.callbacks, Note(**about)],
        )
        if how.request:
            record.write(result, how.request)
    except KeyboardInterrupt:
        stop("Stopped. Run the same command with --resume to resume." if unfinished(out).exists() else "Stopped.")
    finally:
        if processes.is_first():
            drop_original(out)
    return result


def _answers(start: Beginning, result: Result, out: Path, compute: Compute) -> AnswerScores | None:
    """Let a language model and its original answer, and score that; None for other models."""
    if not start.task.questions or not processes.is_first():
        return None
    say("Asking the models.")
    return keep_answers(start.task, result, out, compute)


def _show(start: Beginning, result: Result, out: Path, compute: Compute, *, as_json: bool) -> None:
    answers = _answers(start, result, out, compute)
    if as_json:
        found = {**result.scores.to_dict(), "verdict": result.verdict.to_dict(), "out": str(out)}
        found["cost"] = result.cost.to_dict()
        typer.echo(json.dumps(found | ({"answers": answers.to_dict()["metrics"]} if answers else {})))
        return
    for text in (result.verdict, f"\n{result.scores}"):
        out_console.print(str(text), highlight=False, markup=False, soft_wrap=True)
    if answers:
        out_console.print(f"\n{answers}", highlight=False, markup=False)
    out_console.print(
        f"\nWritten to {out if out.name else absolute(out)}.",
        highlight=False,
        markup=False,
    )
