"""What every command shares: the application, its consoles, options that recur, exit codes."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from unweave._version import __version__
from unweave.errors import RunError, RunWarning, UsageError
from unweave.lab.benchmarks import Benchmark, find_benchmark
from unweave.runtime import processes


class Commands(TyperGroup):
    """The commands. One that is stopped with Ctrl-C, and does not itself say how to go on, says that it stopped."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            stop("Stopped.")


app = typer.Typer(
    name="unweave",
    cls=Commands,
    help="Make a trained model forget part of its data, and keep what looks like it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out_console, err_console = Console(), Console(stderr=True)
TOGETHER = ("run", "evaluate")  # what several processes can do

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1. Default: the best there is.")]
Precision = Annotated[str, typer.Option(help="auto (bfloat16 on CUDA, float32 elsewhere), float32 or bfloat16.")]
Compile = Annotated[str, typer.Option("--compile", help="Compile the model: auto (where it saves time), on or off.")]
BenchmarkName = Annotated[str, typer.Argument(help="A name from `unweave benchmarks`.")]
DataFolder = Annotated[
    str | None,
    typer.Option(envvar="UNWEAVE_DATA", help="Folder with the data sets; hub: the Hugging Face Hub."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An option of the benchmark; repeatable."),
]
SplitFile = Annotated[Path | None, typer.Option("--split", help="Indices that replace the benchmark's split.")]
TestSplitFile = Annotated[
    Path | None, typer.Option("--test-split", help="Indices of the test data that go with --split; without it, none.")
]
Track = Annotated[
    str, typer.Option(metavar="NAME,…", help="Send the history to trackers that Accelerate knows, such as tensorboard.")
]
Tuned = Annotated[
    Path | None, typer.Option(help="A folder of `unweave tune`, for the profile tuned (or tuned-retrain).")
]
Small = Annotated[bool, typer.Option("--small", help="Little data and a tiny model, to try it on two cores.")]


def main() -> None:
    """Run the command line; end with code 2 for wrong usage and 1 when the work failed.

    Of several processes that a launcher started, the first speaks.
    """
    warnings.showwarning = _warn
    if processes.launched() > 1:
        signal.signal(signal.SIGTERM, _ended)  # what a launcher sends to all when one of them is gone
    try:
        with _silent() if not processes.is_first() else nullcontext():
            app()
    except UsageError as error:
        _fail(error, code=2)
    except (RunError, OSError) as error:
        _fail(error, code=1)
    except SystemExit as end:
        if not end.code:
            processes.leave()
        raise


@contextmanager
def _silent() -> Iterator[None]:
    """Print nothing inside."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


def _fail(error: Exception, *, code: int) -> NoReturn:
    who = "unweave" if processes.is_first() else f"unweave, process {processes.rank()}"

    def say(text: str) -> None:
        err_console.print(f"{who}: {text}", style="red", markup=False, highlight=False, soft_wrap=True)

    processes.last_words(str(error), say)
    sys.exit(code)


def _ended(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise processes.silence()


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Tell a warning of ours in one sentence, and any other with its place."""
    if not processes.is_first():
        return
    text = f"warning: {message}" if category is RunWarning else f"{filename}:{lineno}: {category.__name__}: {message}"
    err_console.print(f"unweave: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unweave {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make a trained model forget part of its data, and keep what looks like it."""
    command = context.invoked_subcommand
    if processes.launched() > 1 and command not in TOGETHER:
        raise UsageError(
            f"unweave {command} works in one process, but {processes.launched()} were started. Several are for "
            f"{' and '.join(f'unweave {name}' for name in TOGETHER)}; a study has --workers."
        )


def say(text: str) -> None:
    """Tell a person on standard error."""
    if not processes.is_first():
        return
    err_console.print(text, style="dim", markup=False, highlight=False)


def stop(words: str) -> NoReturn:
    """End after Ctrl-C with a word to the person who pressed it."""
    say(words)
    raise typer.Exit(130) from None


def listing(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and summaries as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, summary in rows:
        table.add_row(name, summary)
    return table


def words(text: str) -> list[str]:
    """Split words joined by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pairs(texts: list[str]) -> dict[str, str]:
    """Split KEY=VALUE texts."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"Expected KEY=VALUE, not {text!r}.")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def chosen_options(options: list[str] | None, small: bool) -> dict[str, Any]:
    """Return a benchmark's options as the command line gave them."""
    return {**pairs(options or []), **({"small": True} if small else {})}


def benchmark_of(
    name: str, *, data: str | None, options: list[str] | None, small: bool, tuned: Path | None = None
) -> Benchmark:
    """Return the benchmark that a command names."""
    return find_benchmark(name, data=data, options=chosen_options(options, small), tuned=tuned)
