"""The tutorials: their code fits the library, and their committed outputs are those of their code.

They are executed by `make docs`, and by `pytest -m slow tests/docs`; that takes minutes.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import subprocess
import sys

import pytest

import unweave
from tests.helpers.places import ROOT

FILES = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
EVERY = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("notebooks")


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def dotted(node):
    """Return ``uw.a.b`` as ["a", "b"]; None for anything else."""
    names = []
    while isinstance(node, ast.Attribute):
        names, node = [node.attr, *names], node.value
    return names if names and isinstance(node, ast.Name) and node.id == "uw" else None


def found(names):
    home = unweave
    for name in names:
        home = getattr(home, name)
    return home


def check_code(code):
    """Every public name exists, and takes the arguments that it is called with."""
    tree = ast.parse(code)
    seen = [names for node in ast.walk(tree) if (names := dotted(node))]
    for names in seen:
        found(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (names := dotted(node.func)):
            places = [None for _ in node.args]
            inspect.signature(found(names)).bind(*places, **{word.arg: None for word in node.keywords if word.arg})
    return seen


def test_examples_of_the_tool(tool):
    done = doctest.testmod(tool)
    assert done.attempted
    assert not done.failed


def test_there_are_five_tutorials_and_the_site_has_them():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(FILES) >= 5
    for file in FILES:
        assert f": tutorials/{file.stem}.md\n" in nav


@EVERY
def test_the_code_fits_the_library(file, tool):
    code = "\n".join(tool.code_of(read(file)))
    seen = check_code(code)
    assert seen or "-m" in code  # one works through the command line
    assert "http" not in code


def test_code_that_does_not_fit_is_found():
    with pytest.raises(AttributeError):
        check_code("uw.unlearned(model)")
    with pytest.raises(TypeError, match="epoch"):
        check_code("uw.Scrub(epoch=3)")


@EVERY
def test_the_outputs_are_of_this_code(file, tool):
    notebook = read(file)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["metadata"]["executed_code"] == tool.digest_of(notebook), "run `make notebooks`"
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    written = "".join(text for output in outputs for text in output.get("text", []))
    assert not re.search(r"(/tmp|/home|/root|/Users|[A-Z]:\\|Warning|\x1b)", written)
    pictures = [cell for cell in cells if any("image/png" in output.get("data", {}) for output in cell["outputs"])]
    assert pictures
    assert all(len(cell["metadata"]["alt"]) > 20 for cell in pictures)


@EVERY
def test_it_is_short_enough_to_read(file):
    notebook = read(file)
    words = sum(len("".join(cell["source"]).split()) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert words < 900
    assert file.stat().st_size < 200_000


@pytest.mark.slow
@EVERY
def test_it_runs(file, tool, tmp_path):
    code = "\n".join(tool.code_of(read(file)))
    plain = {**os.environ, "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
