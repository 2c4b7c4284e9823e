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
from unweave.methods import all_methods, find_method
from unweave.report import accuracy_table
from unweave.run import check_request, refuse_existing, unlearn

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
    done = run_demo(out, seeds=seeds, device=device, say=lambda text: err_console.print(text, style="dim"))
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
    data: Annotated[Path | None, typer.Option(envvar="UNWEAVE_DATA", help="Folder with the data sets.")] = None,
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


def _pairs(texts: list[str]) -> dict[str, str]:
    """Split KEY=VALUE texts."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--set takes KEY=VALUE, not {text!r}.")
        pairs[key.strip().replace("-", "_")] = value.strip()
    return pairs


def _listing(rows: Any) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, summary in rows:
        table.add_row(name, summary)
    return table
