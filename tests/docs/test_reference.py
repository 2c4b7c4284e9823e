"""The pages of docs/reference are those that the code makes now, and cover it."""

from __future__ import annotations

import dataclasses
import importlib
import re

import pytest
import typer

import unweave
from tests.helpers.pages import commands
from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.cli.commands import COMMANDS
from unweave.methods import METHODS
from unweave.requests import Request, keys_of

PAGES = ROOT / "docs" / "reference"


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("reference")


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def section(text, heading):
    """Return what stands below a heading, up to the next one of its level."""
    level = re.search(rf"(?m)^(#+) {re.escape(heading)}$", text)[1]
    return re.split(rf"(?m)^{level} ", text.partition(f"\n{level} {heading}\n")[2])[0]


@pytest.mark.parametrize("name", ["python.md", "settings.md", "command-line.md", "request-file.md"])
def test_a_page_is_what_the_code_makes_of_it(name, reference):
    assert reference.PAGES[name]() + "\n" == page(name), "run `make reference`"


def test_every_public_name_is_there():
    text = page("python.md")
    modules = {"losses", "projection", "record"}
    shown = set(re.findall(r"(?m)^::: unweave\.(\w+)$", text))
    assert shown == {*unweave.__all__} - modules - {"__version__"}
    for module in modules:
        assert f"::: unweave.{module}." in text


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_a_method_is_there(name):
    method = METHODS[name]
    text = section(page("settings.md"), name)
    for field in dataclasses.fields(method):
        assert f"| `{field.name}` |" in text
    for profile, values in list(method.profiles.items())[1:]:
        (row,) = re.findall(rf"(?m)^\| `{profile}` \|.*$", text)
        assert all(f"`{setting}={value}`" in row for setting, value in values.items())


def test_every_command_and_flag_is_there():
    for module, _ in COMMANDS.values():
        importlib.import_module(f"unweave.cli.{module}")
    found = dict(commands(typer.main.get_group(app)))
    assert {name.split()[1] for name in found} == {*COMMANDS}
    assert len(found) > 20
    text = page("command-line.md")
    for name, one in found.items():
        rows = re.findall(r"(?m)^\| `([^`]+)`", section(text, name))
        written = {word for row in rows for word in re.split(r"[ ,/]+", row)}
        flags = {flag for parameter in one.params if parameter.param_type_name == "option" for flag in parameter.opts}
        assert flags <= written, name


def test_every_key_of_a_request_is_there():
    keys = re.findall(r"(?m)^\| `([^`]+)` \|", page("request-file.md"))
    assert keys == [*keys_of(Request)]
