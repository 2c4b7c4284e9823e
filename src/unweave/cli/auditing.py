"""`unweave evaluate` and `unweave audit`: measure and attack a saved model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.cli.app import app, out_console, say
from unweave.cli.options import (
    AsJson,
    DataFolder,
    Device,
    OptionValues,
    Small,
    SplitFile,
    TestSplitFile,
    chosen_options,
    words,
)

if TYPE_CHECKING:
    from unweave.evaluation import Metric, Scores
    from unweave.lab.audit import Subject

SavedModel = Annotated[Path | None, typer.Argument(help="Safetensors file, or folder of a run.")]
OfBenchmark = Annotated[
    str | None,
    typer.Option(
        "--benchmark", help="Benchmark, or request file, of the model and its data. The folder of a run names it."
    ),
]
SourceName = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="MODULE:FUNCTION",
        help="Your function that returns (model, train, test), instead of a benchmark.",
    ),
]
References = Annotated[list[Path] | None, typer.Option("--reference", help="Weights of a retrained model. Repeatable.")]
RetrainCount = Annotated[int, typer.Option(min=0, help="Number of references to retrain by the benchmark's recipe.")]
Original = Annotated[
    Path | None, typer.Option(help="Weights of the model before unlearning. Default: the model of the request.")
]

LmEval = Annotated[
    str | None,
    typer.Option(
        "--lm-eval",
        metavar="TASKS",
        help="Also run these tasks of lm-eval, joined by commas, on a language model, and on its original if that is "
        "known. Needs the extra lm-eval.",
    ),
]
LmEvalFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder with tasks for --lm-eval of your own, as YAML files.")
]
LmEvalLimit = Annotated[int | None, typer.Option(min=1, help="Most questions of a task of --lm-eval.")]


@app.command()
def evaluate(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: SourceName = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    reference: References = None,
    retrain: RetrainCount = 0,
    original: Original = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            help="Question: membership, reference, probe, relearn. Repeatable. Default: membership and reference."
        ),
    ] = None,
    lm_eval: LmEval = None,
    lm_eval_folder: LmEvalFolder = None,
    lm_eval_limit: LmEvalLimit = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    r"""Measure a saved model: accuracies, attacks, distance to retrained models, both goals.

    \b
    Examples:
      unweave evaluate runs/17
      unweave evaluate runs/17 --ask membership --ask relearn
      unweave evaluate model.safetensors --benchmark digits --retrain 2
      unweave evaluate runs/17 --lm-eval hellaswag,arc_easy
    """
    from unweave.evaluation import QUESTIONS
    from unweave.lab.audit import examine, load_subject

    _tidy(model)
    subject = load_subject(
        model,
        benchmark=benchmark,
        split=split,
        test_split=test_split,
        data=data,
        options=chosen_options(options, small),
        source=source,
    )
    how: dict[str, Any] = {"folder": lm_eval_folder, "limit": lm_eval_limit, "device": device}
    tasks = _of_tasks(subject, lm_eval, original, how) if lm_eval else []
    scores = examine(
        subject,
        references=reference or [],
        retrain=retrain,
        original=original,
        questions=ask or QUESTIONS[:2],
        device=device,
        say=say,
    )
    _print_scores(scores, as_json, tasks)


@app.command()
def audit(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: SourceName = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    reference: References = None,
    retrain: RetrainCount = 2,
    original: Original = None,
    method: Annotated[
        str | None, typer.Option(help="Method that made the model, if its folder does not name it.")
    ] = None,
    shadows: Annotated[
        int, typer.Option(min=0, help="Number of shadow models for U-LiRA: even and at least 4, or 0 for none.")
    ] = 16,
    out: Annotated[
        Path | None, typer.Option(help="Folder that keeps the shadow models. The same command resumes from it.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the shadow models and the attacks.")] = 0,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    r"""Attack a saved model with every attack, including shadow models, relearning and a probe.

    \b
    Examples:
      unweave audit runs/17 --out audit
      unweave audit runs/17 --shadows 0
    """
    from unweave.lab.audit import audit as run_audit
    from unweave.lab.audit import load_subject

    _tidy(model)
    subject = load_subject(
        model,
        benchmark=benchmark,
        split=split,
        test_split=test_split,
        data=data,
        options=chosen_options(options, small),
        source=source,
        method=method,
    )
    scores = run_audit(
        subject,
        references=reference or [],
        retrain=retrain if subject.benchmark and subject.benchmark.retrains else 0,
        original=original,
        shadows=shadows,
        folder=out,
        seed=seed,
        device=device,
        say=say,
    )
    _print_scores(scores, as_json)


def _tidy(model: Path | None) -> None:
    """Remove what a process that was killed at the end of its run left beside the model."""
    if model is not None and model.is_dir():
        from unweave.runs import tidy

        tidy(model, original=True)


def _of_tasks(subject: Subject, tasks: str, original: Path | None, how: Mapping[str, Any]) -> list[Metric]:
    """Run tasks of lm-eval on the model, and on its original if that is known."""
    from unweave.lab.audit import lm_eval_scores, original_of

    return lm_eval_scores(subject, words(tasks), original=original_of(subject, original), **how)


def _print_scores(scores: Scores, as_json: bool, tasks: Sequence[Metric] = ()) -> None:
    """Print the scores, and the numbers of tasks of lm-eval beside them."""
    from unweave.evaluation import Scores
    from unweave.lab.audit import lm_eval_table

    if as_json:
        typer.echo(json.dumps(Scores(scores.values, [*scores.metrics, *tasks]).to_dict()))
    else:
        out_console.print(str(scores), highlight=False, markup=False)
        if tasks:
            out_console.print("\n" + lm_eval_table(tasks), highlight=False, markup=False)
