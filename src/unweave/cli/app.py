"""What every command shares: the application, its consoles, exit codes."""

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
from unweave.runtime import processes

ORDER = (  # of the commands in the help
    *("demo", "methods", "benchmarks", "run", "studies", "study", "tune", "report", "compare", "evaluate", "audit"),
    *("record", "keygen", "show", "page", "verify", "prove", "check-sample"),
)


class Commands(TyperGroup):
    """The commands, in the order of the help. A command that Ctrl-C ends prints that it stopped."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order in which a user needs them."""
        return sorted(super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

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
TOGETHER = ("run", "evaluate")  # commands for several processes


def main() -> None:
    """Run the command line. The exit code is 2 for wrong usage and 1 if the work failed.

    If a launcher started several processes, only the first prints.
    """
    warnings.showwarning = _warn
    if processes.launched() > 1:
        signal.signal(signal.SIGTERM, _ended)  # a launcher sends it to all when one of them died
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # handle it only once
    raise processes.silence()


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of ours as one sentence, and any other with its file and line."""
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Make a trained model forget part of its data, and keep what looks like it."""
    command = context.invoked_subcommand
    if processes.launched() > 1 and command not in TOGETHER:
        raise UsageError(
            f"unweave {command} works in one process, but {processes.launched()} were started. Only "
            f"{' and '.join(f'unweave {name}' for name in TOGETHER)} use several. A study has --workers."
        )


def say(text: str) -> None:
    """Print a line to standard error, from the first process only."""
    if not processes.is_first():
        return
    err_console.print(text, style="dim", markup=False, highlight=False)


def stop(words: str) -> NoReturn:
    """Print words to standard error and end with the exit code of Ctrl-C."""
    say(words)
    raise typer.Exit(130) from None


def listing(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and summaries as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, summary in rows:
        table.add_row(name, summary)
    return table
