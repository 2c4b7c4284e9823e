"""The commands are found by name: the help knows them all, and loads none."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.cli.commands import COMMANDS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "accelerate")


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
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
