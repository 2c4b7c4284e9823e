"""The commands are found by name: the help knows them all, and loads none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.cli.commands import COMMANDS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "accelerate")


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["run", "--help"], ["convert", "--help"]])
def test_the_version_and_the_help_load_no_torch(words):
    code = f"""
import sys
sys.argv = ["unweave", *{words!r}]
from unweave.cli import main
try:
    main()
finally:
    print("loaded:", *({set(HEAVY)!r} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if words else 2), done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_every_command_is_in_the_help_with_its_summary():
    group = typer.main.get_command(app)
    context = group.make_context("unweave", [], resilient_parsing=True)
    assert group.list_commands(context) == list(COMMANDS)
    for name, (_, summary) in COMMANDS.items():
        written = group.get_command(context, name).help.split("\n\n")[0]
        assert " ".join(written.split()) == summary
    assert set(group.commands) == set(COMMANDS)
    shown = " ".join(group.get_help(context).split())
    for name, (_, summary) in COMMANDS.items():
        assert f"{name} {summary}" in shown


def test_every_module_of_commands_is_in_the_table():
    modules = {file.stem for file in (ROOT / "src/unweave/cli").glob("*.py") if "\n@app.command" in file.read_text()}
    modules |= {file.stem for file in (ROOT / "src/unweave/cli").glob("*.py") if "\napp.add_typer" in file.read_text()}
    assert modules == {module for module, _ in COMMANDS.values()}


def test_a_wrong_name_suggests_the_nearest():
    done = subprocess.run([sys.executable, "-m", "unweave", "stdy"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No such command 'stdy'" in done.stderr
    assert "Did you mean 'study'" in done.stderr


def test_completion_knows_commands_and_flags():
    for words, place, expected in (("unweave insp", 1, "inspect"), ("unweave run --meth", 2, "--method")):
        asked = {"_UNWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        code = "import sys; sys.argv = ['unweave']; from unweave.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
        )
        assert expected in done.stdout.split(), done.stderr


def test_the_help_of_the_commands_people_begin_with_has_examples():
    group = typer.main.get_command(app)
    context = group.make_context("unweave", [], resilient_parsing=True)
    for name in ("unlearn", "inspect", "init", "convert", "run", "study", "tune", "evaluate", "audit", "report"):
        command = group.get_command(context, name)
        shown = command.get_help(typer.Context(command, info_name=f"unweave {name}"))
        lines = [line for line in shown.splitlines() if line.strip().startswith(f"unweave {name} ")]
        assert lines, name
        assert all(len(line) <= 100 for line in lines)
