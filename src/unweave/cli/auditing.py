"""`unweave evaluate` and `unweave audit`: measure and attack a saved model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console, say
from unweave.cli.options import AsJson, DataFolder, Device, Options, Small, SplitFile, TestSplitFile, chosen_options
from unweave.evaluation import QUESTIONS, Scores

SavedModel = Annotated[Path | None, typer.Argument(help="A safetensors file, or the folder of a run.")]
OfBenchmark = Annotated[str | None, typer.Option("--benchmark", help="Whose data and model; a run folder knows.")]
Source = Annotated[
    str | None,
    typer.Option("--from", metavar="MODULE:FUNCTION", help="Yours: returns (model, train, test)."),
]
References = Annotated[list[Path] | None, typer.Option("--reference", help="A retrained model; repeatable.")]
Retrain = Annotated[int, typer.Option(min=0, help="Retrain that many references by the benchmark's recipe.")]
Original = Annotated[Path | None, typer.Option(help="The model before unlearning.")]


@app.command()
def evaluate(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: Source = None,
    data: DataFolder = None,
    options: Options = None,
    small: Small = False,
    reference: References = None,
    retrain: Retrain = 0,
    original: Original = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(help=f"A question ({', '.join(QUESTIONS)}); repeatable. Default: the cheap."),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure a saved model: accuracies, attacks, distance to retrained models, both goals."""
    from unweave.lab.audit import examine, load_subject

    subject = load_subject(
        model,
        benchmark=benchmark,
        split=split,
        test_split=test_split,
        data=data,
        options=chosen_options(options, small),
        source=source,
    )
    scores = examine(
        subject,
        references=reference or [],
        retrain=retrain,
        original=original,
        questions=ask or QUESTIONS[:2],
        device=device,
        say=say,
    )
    _print_scores(scores, as_json)


@app.command()
def audit(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: Source = None,
    data: DataFolder = None,
    options: Options = None,
    small: Small = False,
    reference: References = None,
    retrain: Retrain = 2,
    original: Original = None,
    method: Annotated[str | None, typer.Option(help="How it was unlearned, if its folder does not say.")] = None,
    shadows: Annotated[
        int, typer.Option(min=0, help="Shadow models of U-LiRA, an even number, 4 at least; 0: none.")
    ] = 16,
    out: Annotated[Path | None, typer.Option(help="Folder that keeps the shadow models, to go on later.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of shadow models and attacks.")] = 0,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Attack a saved model with everything there is, shadow models, relearning and probe included."""
    from unweave.lab.audit import audit as run_audit
    from unweave.lab.audit import load_subject

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
        retrain=retrain if subject.benchmark else 0,
        original=original,
        shadows=shadows,
        folder=out,
        seed=seed,
        device=device,
        say=say,
    )
    _print_scores(scores, as_json)


def _print_scores(scores: Scores, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(scores.to_dict()))
    else:
        out_console.print(str(scores), highlight=False, markup=False)
