"""`unweave tune`: choose every method's settings on held-out training data."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from unweave.cli.app import app, out_console, say, stop
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
    Workers,
    chosen_options,
    words,
)

if TYPE_CHECKING:
    from unweave.lab.tuning import Tuning

TuningSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Seed of the held-out data, of training and of the search. Default: one that no results are reported for.",
    ),
]


@app.command()
def tune(
    benchmark: BenchmarkName,
    out: Annotated[Path, typer.Option(help="Folder of the tuning. The same command resumes it.")],
    methods: Annotated[str, typer.Option(help="Names of methods, joined by commas, or all.")] = "all",
    trials: Annotated[int, typer.Option(min=1, help="Number of settings to try for each method.")] = 20,
    goal: Annotated[
        str, typer.Option(help="Goal: erase (forget, and keep the rest) or retrain (behave like a retrained model).")
    ] = "erase",
    seed: TuningSeed = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds that judge each trial. The mean counts.")] = 1,
    workers: Workers = "1",
    cluster: Cluster = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Start no trial after this time, and stop training too."),
    ] = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    device: Device = None,
    precision: Precision = "auto",
    compile_: Compile = "auto",
    as_json: AsJson = False,
) -> None:
    r"""Tune methods with equally many trials each, judged on a held-out fifth of the training data, never on test data.

    The best settings become the benchmark's profile `tuned`. Use it with --profiles tuned --tuned FOLDER.

    \b
    Examples:
      unweave tune digits --methods ga --trials 20 --out tuning
      unweave tune request.yaml --methods ga --out tuning
    """
    from unweave.cli.worker_count import sharing
    from unweave.engine import Compute
    from unweave.lab.benchmarks import find_benchmark
    from unweave.lab.tuning import tune as run_tuning

    how: dict[str, Any] = {"device": device, "precision": precision, "compile": compile_}
    limits: dict[str, Any] = {"time_limit": time_limit, **({} if seed is None else {"seed": seed})}
    source = partial(find_benchmark, benchmark, data=data, options=chosen_options(options, small))
    try:
        with sharing(workers, source, Compute(**how), cluster=cluster) as count:
            done = run_tuning(
                source,
                out,
                methods=words(methods),
                trials=trials,
                goal=goal,
                seeds=seeds,
                workers=count,
                cluster=cluster,
                **how,
                **limits,
                write=say,
            )
    except KeyboardInterrupt:
        stop("Stopped. Finished work is kept. Run the same command to resume.")
    given: dict[str, Any] = {"benchmark": benchmark, "out": out, "goal": goal, "data": data}
    _show(done, trials=trials, options=options, small=small, as_json=as_json, **given)


def _show(
    done: Tuning,
    *,
    benchmark: str,
    out: Path,
    goal: str,
    data: str | None,
    trials: int,
    options: list[str] | None,
    small: bool,
    as_json: bool,
) -> None:
    """Print the best settings, how to use them, and how many trials are left."""
    left, asked = sum(done.left().values()), trials * len(done.searches)
    if as_json:
        best = done.best["methods"] if done.best else {}
        typer.echo(json.dumps({"out": str(out), "goal": goal, "trials": asked, "done": asked - left, "best": best}))
    elif done.best:
        out_console.print(_table(done.best))
        chosen = [*(f"--option={option}" for option in options or []), *(["--small"] if small else [])]
        use = _use(benchmark, list(done.best["methods"]), goal=goal, out=out, more=chosen, data=data)
        out_console.print(f"\nUse it: {use}", highlight=False, markup=False, soft_wrap=True)
    if left:
        say(f"{asked - left} of {asked} trials are done. Run the same command to continue.")
    elif not done.best:
        say(
            f"No settings were chosen: {out} also holds methods with another number of trials, so a comparison would "
            "be unfair. Give all methods the same number with --trials."
        )


def _use(benchmark: str, methods: list[str], *, goal: str, out: Path, more: list[str], data: str | None) -> str:
    """Return the command that runs the tuned methods and the references."""
    from unweave.lab.benchmarks import profile_of_goal
    from unweave.lab.study import REFERENCES
    from unweave.lab.tuning import tuned_methods

    every = set(methods) >= set(tuned_methods(["all"]))
    given = [*(["--data", data] if data else []), *more]
    given += [] if every else ["--methods", ",".join([*REFERENCES, *methods])]
    given += ["--profiles", profile_of_goal(goal), "--tuned", str(out), "--out", f"{out}-study"]
    return shlex.join(["unweave", "study", benchmark, *given])


def _table(best: dict[str, Any]) -> Table:
    """Return a table of every method's score and of the cost of its trials. It fits 80 columns."""
    from unweave.data import SUBSETS
    from unweave.lab.study import in_words

    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=f"goal {best['goal']}, {best['trials']} trials each: score (1 is best) of the default and the tuned "
        "settings, accuracy (of answers: probability) in % of the tuned ones, all on held-out training data; and the "
        "cost of all trials",
        caption_justify="left",
    )
    for name in ("method", "default", "tuned", *SUBSETS, "failed", "time", "gradients"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for name, found in best["methods"].items():
        cost, accuracy = found["cost"], found["accuracy"]
        table.add_row(
            name,
            f"{found['default_score']:.4f}",
            f"{found['score']:.4f}",
            *(f"{100 * accuracy[subset]:.1f}" if subset in accuracy else "" for subset in SUBSETS),
            str(cost["failed"]),
            in_words(cost["seconds"]),
            f"{cost['sample_gradients']:,}",
        )
    return table
