"""`unweave submit` and `unweave standings`: published numbers side by side. The work is imported when it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console, say
from unweave.cli.options import AsJson, words

BOARD = Path("results/leaderboard")
BoardFolder = Annotated[Path, typer.Option(help="Folder of the leaderboard, with a folder for each submission.")]


@app.command()
def submit(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders of studies of one benchmark.")],
    name: Annotated[str, typer.Option(help="Name of the submission: small letters, digits, hyphens.")],
    methods: Annotated[
        str, typer.Option(metavar="NAME,…", help="Methods to submit, joined by commas. Default: all.")
    ] = "",
    board: BoardFolder = BOARD,
    as_json: AsJson = False,
) -> None:
    r"""Check where the numbers of studies come from, and put their rows on the leaderboard.

    \b
    Examples:
      unweave submit study --name mine
      unweave submit studies/bee studies/rose --name mine --methods my-method
    """
    from unweave.lab.leaderboard import as_markdown
    from unweave.lab.leaderboard import submit as put

    rows = put(folders, board, name=name, methods=words(methods) or None)
    if as_json:
        typer.echo(json.dumps([row.to_dict() for row in rows]))
        return
    out_console.print(as_markdown(rows), highlight=False, markup=False, soft_wrap=True)
    say(f"Written to {board / name}. Commit it and run `python tools/leaderboard.py`.")


@app.command()
def standings(board: BoardFolder = BOARD, as_json: AsJson = False) -> None:
    """Check every submission of a leaderboard, and print the tables.

    Its rows must be those of the numbers beside them.
    """
    from unweave.lab.leaderboard import as_markdown, read_board

    rows = read_board(board)
    if as_json:
        typer.echo(json.dumps([row.to_dict() for row in rows]))
        return
    out_console.print(as_markdown(rows), highlight=False, markup=False, soft_wrap=True)
