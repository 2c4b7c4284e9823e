"""The page on your own model: its commands and keys exist."""

from __future__ import annotations

import re
import shlex

import typer
import yaml

from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.requests import Request, keys_of, recipe_of

PAGE = (ROOT / "docs" / "your-own-model.md").read_text()


def commands():
    for line in PAGE.replace("\\\n", " ").splitlines():
        if line.startswith("    ") and "unweave " in line and "pip install" not in line:
            yield shlex.split(line.partition("#")[0].partition("unweave ")[2])


def test_every_flag_of_a_command_exists():
    group = typer.main.get_command(app)
    context = group.make_context("unweave", [], resilient_parsing=True)
    found = list(commands())
    assert len(found) > 9
    for name, *words in found:
        flags = {flag for parameter in group.get_command(context, name).params for flag in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= flags, name


def test_every_key_of_a_request_exists():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    request, recipe = map(yaml.safe_load, blocks)
    assert set(request) <= set(keys_of(Request))
    assert recipe_of(recipe["recipe"])[0].learning_rate == 2e-5
