"""The map of the package: rooms, who may import whom, and names that mean one thing."""

from __future__ import annotations

import ast
import statistics
from collections import defaultdict

import pytest

from tests.helpers.places import ROOT

SOURCE = ROOT / "src" / "unweave"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(
    (".".join(["unweave", *file.parent.relative_to(SOURCE).parts]) for file in SOURCE.rglob("__init__.py")),
    key=len,
    reverse=True,
)


def module_of(file):
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    """Return the innermost package that a module lies in."""
    return next(room for room in ROOMS if module == room or module.startswith(f"{room}."))


def imports_of(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unweave"):
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.startswith("unweave"))


def public_names(room):
    file = SOURCE.parent.joinpath(*room.split("."), "__init__.py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_another_room_is_imported_through_its_front_door_only(file):
    mine = room_of(module_of(file))
    for module, names in imports_of(file):
        if module == "unweave":
            continue
        room = room_of(module)
        if room == mine or mine.startswith(f"{room}.") or room == "unweave":
            continue
        assert module == room, f"{file} imports {module}; import from {room}"
        assert set(names) <= public_names(room), f"{room} does not name {set(names) - public_names(room)} in __all__"


def test_no_two_modules_share_a_name():
    places = defaultdict(list)
    for file in FILES:
        if file.stem not in ("__init__", "__main__"):
            places[file.stem].append(file.relative_to(SOURCE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_public_classes_share_a_name():
    places = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.relative_to(SOURCE).as_posix()}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared == {}


def test_no_room_is_called_utils():
    assert not [file for file in FILES if {"utils", "util", "common", "misc"} & set(file.relative_to(SOURCE).parts)]
    assert not [file for file in FILES if file.stem in ("utils", "util", "common", "misc")]


def test_the_tests_mirror_the_package():
    rooms = {room.removeprefix("unweave").strip(".").replace(".", "/") for room in ROOMS}
    folders = {
        folder.relative_to(ROOT / "tests").as_posix()
        for folder in (ROOT / "tests").rglob("*")
        if any(folder.glob("*.py"))
    }
    assert folders - rooms - {"helpers", "published", "bench", "docs"} == set()


def test_no_test_module_imports_another():
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                assert node.module.startswith("tests.helpers"), f"{file} imports {node.module}"


def functions():
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file.relative_to(SOURCE).as_posix()}:{node.lineno} {node.name}", node


def branches(function):
    """Return how many ways lead through a function: loops, conditions, and those within expressions."""
    found = 1
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def test_functions_fit_on_a_screen():
    assert not {name: lines for name, node in functions() if (lines := node.end_lineno - node.lineno + 1) > 60}


def test_functions_have_few_branches():
    assert not {name: count for name, node in functions() if (count := branches(node)) > 15}


def test_files_are_short():
    assert statistics.median(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES) <= 110
