"""The commands are found by name: the help knows them all, and loads none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import typer

from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.cli.commands import COMMANDS
from unweave.evaluation import QUESTIONS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "accelerate")


def every_command(group, context, before=()):
    """Yield the words of every command of the application, and of commands of commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield [*before, name]
        if hasattr(command, "list_commands"):
            yield from every_command(command, typer.Context(command), [*before, name])


CALLS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from unweave.cli import main
found = []
for words in json.loads(sys.argv.pop()):
    sys.argv = ["unweave", *words]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            code = end.code
    found.append([words, code, sorted(HEAVY & set(sys.modules))])
print(json.dumps(found))
"""


def test_the_version_help_of_any_command_and_wrong_usage_load_no_torch():
    group = typer.main.get_command(app)
    commands = list(every_command(group, group.make_context("unweave", [], resilient_parsing=True)))
    assert [words[0] for words in commands if len(words) == 1] == list(COMMANDS)
    assert ["record", "verify"] in commands
    calls = [["--version"], ["--help"], [], ["stdy"], *([*words, "--help"] for words in commands)]
    calls += [[*words, "--no-such-option"] for words in commands]
    code = CALLS.replace("HEAVY", repr(set(HEAVY)))
    done = subprocess.run([sys.executable, "-c", code, json.dumps(calls)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    right = ("--version", "--help")
    assert json.loads(done.stdout) == [[words, 0 if words[-1:] and words[-1] in right else 2, []] for words in calls]


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
    cases = (
        ("unweave insp", 1, "inspect"),
        ("unweave run --meth", 2, "--method"),
        ("unweave unlearn --adj", 2, "--adjacent"),
    )
    for words, place, expected in cases:
        asked = {"_UNWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        code = (
            "import atexit, sys; sys.argv = ['unweave']; from unweave.cli import main\n"
            f"atexit.register(lambda: print(*({set(HEAVY)!r} & set(sys.modules)), file=sys.stderr))\nmain()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
        )
        assert expected in done.stdout.split(), done.stderr
        assert done.stderr.split() == []


def test_the_help_names_every_question():
    group = typer.main.get_command(app)
    evaluate = group.get_command(group.make_context("unweave", [], resilient_parsing=True), "evaluate")
    (ask,) = (option for option in evaluate.params if option.name == "ask")
    asked, default = ask.help.removeprefix("Question: ").removesuffix(".").split(". Repeatable. Default: ")
    assert asked.split(", ") == list(QUESTIONS)
    assert default.split(" and ") == list(QUESTIONS[:2])


def test_the_help_of_the_commands_people_begin_with_has_examples():
    group = typer.main.get_command(app)
    context = group.make_context("unweave", [], resilient_parsing=True)
    for name in ("unlearn", "inspect", "init", "convert", "run", "study", "tune", "evaluate", "audit", "report"):
        command = group.get_command(context, name)
        shown = command.get_help(typer.Context(command, info_name=f"unweave {name}"))
        lines = [line for line in shown.splitlines() if line.strip().startswith(f"unweave {name} ")]
        assert lines, name
        assert all(len(line) <= 100 for line in lines)
