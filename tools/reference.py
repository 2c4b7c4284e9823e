"""Write the pages of docs/reference that are made from the code: `make reference`. A test compares them with the code.

python.md lists the public names, whose docstrings mkdocstrings fills in. settings.md has every setting of every method,
command-line.md every flag of every command, request-file.md every key of a request.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import typer

import unweave
from places import REFERENCE
from unweave.cli.app import app
from unweave.methods import METHODS, PGD, Method
from unweave.requests import Request, keys_of, schema_of

MADE = "<!-- Made by tools/reference.py from the code: do not edit. -->"
PARTS = {
    "api": "Split, unlearn, read the result",
    "evaluation": "Measure",
    "engine": "How a run computes, and what goes along",
    "tasks": "What a sample is to a model",
    "data": "Data of language models",
    "requests": "Requests",
    "runs": "Saved models",
    "methods": "Methods",
}
ROOMS = {
    "unweave.losses": "Losses, one number per sample",
    "unweave.projection": "Gradients without the part along others",
    "unweave.record": "Deletion records",
}
RECORD = (
    "write",
    "DeletionRequest",
    "FinishedRun",
    "read_record",
    "check_content",
    "check_signature",
    "check_sample",
    "fingerprint",
)
ERRORS = ("UsageError", "RunError", "RunWarning", "Stopped")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a Markdown table.

    >>> print(table(["name", "value"], [["a|b", 1]]))
    | name | value |
    |---|---|
    | a\|b | 1 |
    """
    lines = [head, ["---"] * len(head), *rows]
    shown = [
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    ]
    shown[1] = "|" + "---|" * len(head)
    return "\n".join(shown)


def code(text: object) -> str:
    """Return text as code, or nothing for nothing."""
    return f"`{text}`" if str(text) else ""


def python() -> str:
    """Return the page of public names, in the order of the rooms."""
    parts = [
        "# The Python library",
        MADE,
        "`import unweave as uw` gives every name on this page. Each has an example that the tests run.",
    ]
    for room, title in PARTS.items():
        parts.append(f"## {title}")
        parts += [entry(name, room) for name in sorted(unweave._ROOMS[room], key=str.casefold)]
    parts.append("## Errors and warnings")
    parts += [f"::: unweave.{name}" for name in ERRORS]
    for module, title in ROOMS.items():
        names = RECORD if module == "unweave.record" else import_module(module).__all__
        parts += [f"## {title}", f"Names of `{module}`."]
        parts += [f"::: {module}.{name}" for name in names]
    return "\n\n".join(parts)


def entry(name: str, room: str) -> str:
    """Return the entry of a public name. A method's settings are on a page of their own."""
    found = f"::: unweave.{name}"
    if room == "methods":
        method = getattr(unweave, name).name
        return f"{found}\n    options:\n      members: false\n\n[Every setting of `{method}`](settings.md#{method})"
    return f"{found}\n    options:\n      inherited_members: true" if name == "Split" else found


def settings() -> str:
    """Return the page of every setting of every method."""
    parts = [
        "# Every setting of every method",
        MADE,
        "A method's text names its sources, says where they differ, and gives the values of each. A profile is a named "
        "set of values; the first is the default. *Tuned* is where `unweave tune` looks. The same from a shell: "
        "`unweave methods NAME`. A benchmark may have values of its own: `unweave benchmarks NAME`.",
        table(
            ["method", "in a sentence"],
            ([f"[`{name}`](#{name})", made.summary] for name, made in METHODS.items()),
        ),
    ]
    for name, method in METHODS.items():
        parts += [f"## {name}", f"In Python: `uw.{method.__name__}(...)`.", explained(method)]
        rows = [
            [
                code(row["name"]),
                code(row["default"]),
                ", ".join(filter(None, (row["type"], row["limits"]))),
                row["help"],
                row["search"],
            ]
            for row in method.describe()
        ]
        parts.append(
            table(["setting", "default", "range", "meaning", "tuned"], rows) if rows else "It has no settings."
        )
        fields = {field.name: field for field in dataclasses.fields(method)}
        if given := [[code(one), fields[one].metadata["help"]] for one in method.given_names()]:
            parts.append("In Python only:\n\n" + table(["given", "meaning"], given))
        parts.append(profiles(method))
    return "\n\n".join(filter(None, parts))


def explained(method: type[Method]) -> str:
    """Return the text at the head of a method's file, which names the paper, the equations and the sources."""
    home = sys.modules[method.__module__]
    source = f"[Its file](../../src/{home.__name__.replace('.', '/')}.py)."
    if method is PGD:  # it shares the file of two-stage
        return f"{method.summary} See [`two-stage`](#two-stage). {source}"
    return f"{as_markdown(home.__doc__ or '')}\n\n{source}"


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown: code in single backticks, equations as blocks that stay as they are."""
    text = re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(text))
    return re.sub(
        r"(?m)^((?:    .+\n?(?:\n(?=    ))?)+)", lambda found: f"```text\n{textwrap.dedent(found[1])}```\n", text
    )


def profiles(method: type[Method]) -> str:
    """Return a table of the values in which the profiles differ from the defaults."""
    others = list(method.profiles.items())[1:]
    first = next(iter(method.profiles))
    if not others:
        return f"Its only profile is `{first}`." if method.describe() else ""
    rows = [
        [code(name), ", ".join(code(f"{key}={value}") for key, value in values.items()) or "the same"]
        for name, values in others
    ]
    return table(["profile", f"differs from `{first}`, the default, in"], rows)


def command_line() -> str:
    """Return the page of every flag of every command."""
    group = typer.main.get_group(app)
    context = group.make_context("unweave", [], resilient_parsing=True)
    parts = [
        "# The command line",
        MADE,
        "Results go to files and to standard output, progress and warnings to standard error. The exit code is 0 on "
        "success, 1 when the work failed, 2 for wrong usage, 130 after Ctrl-C. `unweave --install-completion` teaches "
        "the shell to complete names and flags.",
        flags(group, context),
    ]
    for name in group.list_commands(context):
        parts += command(group.get_command(context, name), f"unweave {name}", level=2)
    return "\n\n".join(filter(None, parts))


def command(found: Any, path: str, *, level: int) -> list[str]:
    """Return the section of a command, and those of its subcommands."""
    context = typer.Context(found, info_name=path)
    usage = " ".join(found.collect_usage_pieces(context))
    words, _, examples = (found.help or "").partition("\b")
    text = re.sub(r"\s*Examples:\s*$", "", words).replace("\f", "").strip()
    parts = ["#" * level + f" {path}", text, f"```text\n{path} {usage}\n```"]
    if lines := [line for line in textwrap.dedent(examples).strip().splitlines() if line.strip() != "Examples:"]:
        parts.append("```shell\n" + textwrap.dedent("\n".join(lines)) + "\n```")
    parts += [arguments(found, context), flags(found, context)]
    for name, inner in getattr(found, "commands", {}).items():
        parts += command(inner, f"{path} {name}", level=level + 1)
    return parts


def arguments(found: Any, context: Any) -> str:
    """Return the table of a command's arguments."""
    records = [one.get_help_record(context) for one in found.params if one.param_type_name == "argument"]
    rows = [[code(re.sub(r" ?<.*", "", name)), help] for name, help in records]
    return table(["argument", "meaning"], rows) if rows else ""


def flags(found: Any, context: Any) -> str:
    """Return the table of a command's flags."""
    rows = []
    for one in found.get_params(context):
        if one.param_type_name != "option" or getattr(one, "hidden", False):
            continue
        written, said = one.get_help_record(context)
        extra = re.findall(r"\s*\[([^]]*)\]$", said)
        notes = extra[0].split("; ") if extra else []
        rows.append(
            [code(written.replace("<", "").replace(">", "")), re.sub(r"\s*\[[^]]*\]$", "", said), "; ".join(notes)]
        )
    return table(["flag", "meaning", "default, range"], rows)


def request_file() -> str:
    """Return the page of every key of a request."""
    properties = schema_of(Request)["properties"]
    rows = []
    for key, field in keys_of(Request).items():
        found = properties[key]
        kind = found.get("enum") or found.get("type")
        kinds = " or ".join(kind) if isinstance(kind, list) else kind
        rows.append([code(key), code(field.name), kinds, found["description"]])
    return "\n\n".join(
        [
            "# The request file",
            MADE,
            "A request is a YAML file. Paths are relative to it. Every key is also a flag of `unweave unlearn` and "
            "`unweave inspect`, and an argument of `uw.Request(...)`. `unweave init` writes a file with comments, "
            "and a JSON schema with which editors complete and check it. [How to use it](../your-own-model.md).",
            table(["key", "in Python", "holds", "meaning"], rows),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "python.md": python,
    "settings.md": settings,
    "command-line.md": command_line,
    "request-file.md": request_file,
}


def main() -> None:
    """Write every page."""
    for name, made in PAGES.items():
        (REFERENCE / name).write_text(made() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
