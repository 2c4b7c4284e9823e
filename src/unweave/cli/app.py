"""What every command shares: the application, its consoles, exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from typer.core import TyperGroup

from unweave._version import __version__
from unweave.cli.commands import COMMANDS
from unweave.errors import RunError, RunWarning, UsageError, on_one_line, printable


class Commands(TyperGroup):
    """The commands. A module is imported when its command runs. A command that Ctrl-C ends prints that it stopped."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the module of a command and return the command. A wrong name imports all, to suggest the nearest."""
        known = [COMMANDS[cmd_name]] if cmd_name in COMMANDS else COMMANDS.values()
        for module, _ in known:
            import_module(f"unweave.cli.{module}")
        self.commands.update(typer.main.get_group(app).commands)
        found = super().get_command(ctx, cmd_name)
        if found is not None and found.help:
            found.help = found.help.replace(r"\b", "\b")  # docstrings are raw; this keeps the lines of examples
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and summaries of all commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

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
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class PlainConsole(Console):
    """A console on which text from data cannot move the cursor or clear the screen: control characters are escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of what is printed, with the control characters in their text escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out_console, err_console = PlainConsole(), PlainConsole(stderr=True)
NO_MEMORY = "The memory is not enough for this. Close other programs, or use smaller batches or less data."
TOGETHER = ("unlearn", "run", "evaluate")  # commands for several processes


def main() -> None:
    """Run the command line. The exit code is 2 for wrong usage and 1 if the work failed.

    If a launcher started several processes, only the first prints.
    """
    warnings.showwarning = _warn
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks is escaped
    if launched() > 1:
        signal.signal(signal.SIGTERM, _ended)  # a launcher sends it to all when one of them died
    try:
        with nullcontext() if is_first() else _silent():
            app()
    except UsageError as error:
        _fail(error, code=2)
    except (RunError, OSError) as error:
        _fail(error, code=1)
    except (MemoryError, RuntimeError, ImportError, SystemError) as error:
        if not _lacks_memory(error):
            raise
        sys.stderr.write(f"unweave: {NO_MEMORY}\n")  # rich would import more
        sys.exit(1)
    except SystemExit as end:
        if not end.code and launched() > 1:
            from unweave.runtime import processes

            processes.leave()
        raise


def _lacks_memory(error: Exception) -> bool:
    """Tell whether memory ran out, as Python, torch or the loader of libraries says it."""
    words = str(error)
    return isinstance(error, MemoryError) or any(
        sign in words
        for sign in (
            "can't allocate memory",
            "out of memory",
            "Cannot allocate memory",
            "failed to map segment",
            "without exception set",
        )
    )


def launched() -> int:
    """Return how many processes a launcher started. Unlike `processes.launched`, it needs no torch."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_first() -> bool:
    """Tell whether this is the process that prints."""
    if launched() == 1:
        return True
    from unweave.runtime import processes

    return processes.is_first()


@contextmanager
def _silent() -> Iterator[None]:
    """Print nothing inside."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


def _fail(error: Exception, *, code: int) -> NoReturn:
    if launched() == 1:
        _print_error("unweave", str(error))
    else:
        from unweave.runtime import processes

        who = "unweave" if processes.is_first() else f"unweave, process {processes.rank()}"
        processes.last_words(str(error), partial(_print_error, who))
    sys.exit(code)


def _print_error(who: str, text: str) -> None:
    err_console.print(f"{who}: {on_one_line(text)}", style="red", markup=False, highlight=False, soft_wrap=True)


def _ended(*_: object) -> NoReturn:
    from unweave.runtime import processes

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
    if not is_first():
        return
    text = f"warning: {message}" if category is RunWarning else f"{filename}:{lineno}: {category.__name__}: {message}"
    err_console.print(f"unweave: {on_one_line(text)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


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
    if launched() > 1 and command not in TOGETHER:
        raise UsageError(
            f"unweave {command} works in one process, but {launched()} were started. Only "
            f"unweave {', '.join(TOGETHER)} use several. A study has --workers."
        )


def say(text: str) -> None:
    """Print a line to standard error, from the first process only."""
    if not is_first():
        return
    err_console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


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
