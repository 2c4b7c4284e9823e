"""The names of `import unweave`: imported on first use, and known to editors and type checkers."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import subprocess
import sys

import pytest

import unweave
from tests.helpers.places import ROOT

SOURCE = ROOT / "src" / "unweave" / "__init__.py"


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def imported_names():
    """Return the names that the file imports from unweave, by module: at once, and for type checkers only."""
    at_once, checked = {}, {}
    for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        found, inner = (checked, node.body) if isinstance(node, ast.If) else (at_once, [node])
        for one in inner:
            if isinstance(one, ast.ImportFrom) and one.module.startswith("unweave"):
                found |= {alias.name: one.module for alias in one.names}
    return at_once, checked


def test_import_unweave_loads_no_torch():
    code = (
        "import sys, unweave; dir(unweave); unweave.UsageError; print(*({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    )
    assert run(code) == []


WAYS = {
    "import unweave; print(unweave.Split.__name__, unweave.losses.__name__)": ["Split", "unweave.losses"],
    "from unweave import *; print(Split.__name__, losses.__name__)": ["Split", "unweave.losses"],
    "from unweave import Split, losses; print(Split.__name__)": ["Split"],
    "import unweave as uw; print(uw.record.__name__)": ["unweave.record"],
    "import unweave; print(unweave.Split is unweave.api.Split, 'Split' in vars(unweave))": ["True", "True"],
}
# Each way in a process of its own, which has torch (that takes seconds to import) but nothing of unweave.
FORKED = """
import os, sys, numpy, scipy.stats, sklearn, torch, torch.utils.data
for way in {ways!r}:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        exec(way, {{}})
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, way
"""


def test_every_way_to_import_a_name_works():
    if hasattr(os, "fork"):
        assert run(FORKED.format(ways=list(WAYS))) == [word for words in WAYS.values() for word in words]
    else:
        for way, words in WAYS.items():
            assert run(way) == words
    with pytest.raises(AttributeError, match="module 'unweave' has no attribute 'splitt'"):
        _ = unweave.splitt
    with pytest.raises(ImportError, match="cannot import name 'splitt'"):
        exec("from unweave import splitt")


def test_type_checkers_see_the_names_that_are_imported_on_first_use():
    at_once, checked = imported_names()
    modules = {name for name, module in checked.items() if module == "unweave"}
    assert {name: module for name, module in checked.items() if name not in modules} == unweave._HOMES
    assert sorted(unweave.__all__) == sorted({*at_once, *checked}) == dir(unweave)


CALLABLE = [name for name in unweave.__all__ if callable(getattr(unweave, name))]


def parameters_of(thing):
    """Return the parameters that a docstring must describe: without fields that carry a help text of their own."""
    fields = {field.name: field for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else {}
    told = {name for name, field in fields.items() if field.metadata}
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if inspect.isclass(thing) and thing.__init__ is object.__init__:
        return set()
    return {
        name
        for name, one in inspect.signature(thing).parameters.items()
        if one.kind not in varying and not name.startswith("_") and name not in told
    }


@pytest.mark.parametrize("name", CALLABLE)
def test_a_public_name_is_documented(name):
    """Every parameter (an exception takes its words), what is returned, and an example."""
    thing = getattr(unweave, name)
    text = inspect.getdoc(thing)
    assert ">>> " in text
    if not (inspect.isclass(thing) and issubclass(thing, BaseException)):
        missing = {parameter for parameter in parameters_of(thing) if f"\n    {parameter}: " not in text}
        assert missing == set()
    if inspect.isfunction(thing):
        assert "Returns:" in text
        assert "Raises:" in text
