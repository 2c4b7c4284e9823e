"""The command line: parse, call, print. Results go to standard output, progress and warnings to standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

import unweave
from unweave.benchmarks import BENCHMARKS, find_benchmark
from unweave.demo import MARK, run_demo
from unweave.errors import RunError, UsageError
from unweave.evaluation import QUESTIONS, Scores
from unweave.methods import all_methods, find_method
from unweave.report import accuracy_table, write_report
from unweave.run import check_request, refuse_existing, unlearn
from unweave.study import plan, run_study

app = typer.Typer(
    name="unweave",
    help="Make a trained model forget part of its data, and keep what looks like it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out_console, err_console = Console(), Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1. Default: the best there is.")]


SavedModel = Annotated[Path | None, typer.Argument(help="A safetensors file, or the folder of a run.")]
OfBenchmark = Annotated[str | None, typer.Option("--benchmark", help="Whose data and model; a run folder knows.")]
SplitFile = Annotated[Path | None, typer.Option("--split", help="Indices that replace the benchmark's split.")]
Source = Annotated[
    str | None,
    typer.Option("--from", metavar="MODULE:FUNCTION", help="Yours: returns (model, train, test)."),
]
DataFolder = Annotated[Path | None, typer.Option(envvar="UNWEAVE_DATA", help="Folder with the data sets.")]
References = Annotated[list[Path] | None, typer.Option("--reference", help="A retrained model; repeatable.")]
Retrain = Annotated[int, typer.Option(min=0, help="Retrain that many references by the benchmark's recipe.")]
Original = Annotated[Path | None, typer.Option(help="The model before unlearning.")]


def main() -> None:
    """Run the command line; end with code 2 for wrong usage and 1 when the work failed."""
    try:
        app()
    except UsageError as error:
        _fail(error, code=2)
    except (RunError, OSError) as error:
        _fail(error, code=1)


def _fail(error: Exception, *, code: int) -> None:
    err_console.print(f"unweave: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unweave {unweave.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make a trained model forget part of its data, and keep what looks like it."""


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
    done = run_demo(out, seeds=seeds, device=device, say=_say)
    if as_json:
        typer.echo(json.dumps(done.scores))
        return
    out_console.print(f"\n{done.entanglement}\n", highlight=False, markup=False)
    out_console.print(accuracy_table(done.scores))
    out_console.print(f"\n{done.meaning()}\n", highlight=False)
    out_console.print(f"Picture: {out / 'forget-losses.png'}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method's settings and profiles.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one."""
    chosen = [find_method(name)] if name else list(all_methods().values())
    if as_json:
        content = [
            {
                "name": method.name,
                "summary": method.summary,
                "needs": list(method.needs),
                "profiles": {profile: dict(values) for profile, values in method.profiles.items()},
                "settings": method.settings.describe(),
            }
            for method in chosen
        ]
        typer.echo(json.dumps(content[0] if name else content))
        return
    if name is None:
        out_console.print(_listing((method.name, method.summary) for method in chosen))
        return
    method = chosen[0]
    out_console.print(f"{method.name}: {method.summary}\n", highlight=False, markup=False)
    for row in method.settings.describe():
        limits = f", {row['limits']}" if row["limits"] else ""
        typer.echo(f"{row['name']} = {row['default']}  ({row['type']}{limits})\n    {row['help']}")
    for profile, values in method.profiles.items():
        text = ", ".join(f"{key}={value}" for key, value in values.items()) or "the defaults above"
        out_console.print(f"\nprofile {profile}: {text}", highlight=False, markup=False)


@app.command()
def benchmarks(
    name: Annotated[str | None, typer.Argument(help="Show this benchmark's recipe and settings.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the benchmarks, or what one consists of."""
    chosen = [find_benchmark(name)] if name else list(BENCHMARKS.values())
    content: list[dict[str, Any]] = [
        {
            "name": benchmark.name,
            "summary": benchmark.summary,
            "recipe": benchmark.recipe.to_dict(),
            "settings": benchmark.settings,
        }
        for benchmark in chosen
    ]
    if as_json:
        typer.echo(json.dumps(content[0] if name else content))
    elif name is None:
        out_console.print(_listing((row["name"], row["summary"]) for row in content))
    else:
        out_console.print(f"{content[0]['name']}: {content[0]['summary']}\n", highlight=False, markup=False)
        out_console.print_json(json.dumps({key: content[0][key] for key in ("recipe", "settings")}))


@app.command()
def run(
    benchmark: Annotated[str, typer.Argument(help="A name from `unweave benchmarks`.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not hold anything yet.")],
    method: Annotated[str, typer.Option(help="A name from `unweave methods`.")] = "two-stage",
    profile: Annotated[str | None, typer.Option(help="Named set of values of the method.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of training and unlearning.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; repeatable."),
    ] = None,
    data: DataFolder = None,
    device: Device = None,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run of this folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a benchmark's model, unlearn with one method, evaluate, and write everything to a folder."""
    chosen, task_source = find_method(method), find_benchmark(benchmark)
    values = {**task_source.settings_for(chosen, profile), **_pairs(settings or [])}
    chosen.configure(values, profile=profile)  # wrong settings are said before anything is trained
    check_request(device=device, precision=precision, out=out, resume=resume)
    task = task_source.load(data)
    original = task_source.train(task, seed=seed, device=device)
    result = unlearn(
        original,
        task.train,
        chosen,
        profile=profile,
        seed=seed,
        out=out,
        resume=resume,
        test=task.test,
        initial=lambda: task_source.initial(seed),
        device=device,
        precision=precision,  # type: ignore[arg-type]
        about={"benchmark": benchmark, "unweave": unweave.__version__, "torch": torch.__version__},
        **values,
    )
    if as_json:
        scores = result.scores.to_dict() if result.scores else {}
        typer.echo(json.dumps({**scores, "cost": result.cost.to_dict(), "out": str(out)}))
        return
    out_console.print(str(result.scores), highlight=False, markup=False)
    out_console.print(
        f"\nWritten to {out} in {result.cost.seconds:.1f} s of unlearning.", highlight=False, markup=False
    )


@app.command()
def study(
    benchmark: Annotated[str, typer.Argument(help="A name from `unweave benchmarks`.")],
    out: Annotated[Path, typer.Option(help="The study's folder; the same command goes on where it stopped.")],
    methods: Annotated[str, typer.Option(help="Names from `unweave methods`, joined by commas, or all.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, …")] = 3,
    profiles: Annotated[str, typer.Option(help="Profiles, joined by commas. Default: each method's first.")] = "",
    grid: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B,…", help="Values of a setting to try; repeatable.")
    ] = None,
    data: DataFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Run methods × seeds on a benchmark into one folder, with one table. Can be stopped and started again."""
    source = find_benchmark(benchmark)
    axes = {key: value.split(",") for key, value in _pairs(grid or []).items()}
    cells = plan(_words(methods), seeds=seeds, profiles=_words(profiles), grid=axes)
    store = run_study(source, cells, out, data=data, device=device, say=_say)
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
def evaluate(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    source: Source = None,
    data: DataFolder = None,
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
    from unweave.audit import examine, load_subject

    subject = load_subject(model, benchmark=benchmark, split=split, data=data, source=source)
    scores = examine(
        subject,
        references=reference or [],
        retrain=retrain,
        original=original,
        questions=ask or QUESTIONS[:2],
        device=device,
        say=_say,
    )
    _print_scores(scores, as_json)


@app.command()
def audit(
    model: SavedModel = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    source: Source = None,
    data: DataFolder = None,
    reference: References = None,
    retrain: Retrain = 2,
    original: Original = None,
    method: Annotated[str | None, typer.Option(help="How it was unlearned, if its folder does not say.")] = None,
    shadows: Annotated[int, typer.Option(min=0, help="Shadow models of U-LiRA, an even number; 0: none.")] = 16,
    out: Annotated[Path | None, typer.Option(help="Folder that keeps the shadow models, to go on later.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of shadow models and attacks.")] = 0,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Attack a saved model with everything there is, shadow models, relearning and probe included."""
    from unweave.audit import audit as run_audit
    from unweave.audit import load_subject

    subject = load_subject(model, benchmark=benchmark, split=split, data=data, source=source, method=method)
    scores = run_audit(
        subject,
        references=reference or [],
        retrain=retrain if subject.benchmark else 0,
        original=original,
        shadows=shadows,
        folder=out,
        seed=seed,
        device=device,
        say=_say,
    )
    _print_scores(scores, as_json)


def _print_scores(scores: Scores, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(scores.to_dict()))
    else:
        out_console.print(str(scores), highlight=False, markup=False)


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


def _say(text: str) -> None:
    err_console.print(text, style="dim", markup=False, highlight=False)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _pairs(texts: list[str]) -> dict[str, str]:
    """Split KEY=VALUE texts."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"Expected KEY=VALUE, not {text!r}.")
        pairs[key.strip().replace("-", "_")] = value.strip()
    return pairs


def _listing(rows: Any) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, summary in rows:
        table.add_row(name, summary)
    return table
