"""A torch whose internals changed: models run uncompiled, with one warning. Only one folder knows torch's internals."""

from __future__ import annotations

import ast
import builtins
import contextlib
import warnings

import pytest
import torch
import torch._dynamo.config
import torch._inductor.compile_fx

from tests.helpers.places import ROOT
from tests.helpers.tensors import same, weights
from unweave import Compute, unlearn
from unweave.engine.compiling import Forwards, recording
from unweave.engine.compiling import forwards as compiled
from unweave.engine.compiling.torch_internals import allow_variants, cache_folder
from unweave.errors import RunWarning

PRIVATE = ("torch._dynamo", "torch._inductor")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4, "guard": None}


def cannot_import(module):
    """Let every import of a module fail, except those of torch's optimisers, which need torch._dynamo for any step."""

    def hide(patch):
        whole = builtins.__import__

        def importing(name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002
            full = {name, *(f"{name}.{part}" for part in fromlist or ())}
            caller = (globals or {}).get("__name__", "")
            if caller not in ("torch.optim.optimizer", "torch._compile") and level == 0:
                for one in full:
                    if one == module or one.startswith(f"{module}."):
                        raise ModuleNotFoundError(f"No module named '{module}'")
            return whole(name, globals, locals, fromlist, level)

        patch.setattr(builtins, "__import__", importing)

    return hide


def without_limit(patch):
    """Take both names of the limit of variants away."""

    class Config:
        @staticmethod
        def patch(values):
            raise AttributeError(f"no setting {next(iter(values))}")

    patch.setattr(torch._dynamo, "config", Config)


CHANGES = {
    "no torch._dynamo": cannot_import("torch._dynamo"),
    "no torch._inductor": cannot_import("torch._inductor"),
    "neither": lambda patch: [cannot_import(name)(patch) for name in PRIVATE],
    "no torch._dynamo.config": cannot_import("torch._dynamo.config"),
    "no limit of variants": without_limit,
    "no compile_fx": lambda patch: patch.delattr(torch._inductor.compile_fx, "compile_fx"),
    "compile_fx takes other arguments": lambda patch: patch.setattr(
        torch._inductor.compile_fx, "compile_fx", lambda graph: graph
    ),
    "no torch.compile": lambda patch: patch.delattr(torch, "compile"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_goes_uncompiled_with_one_warning_when_internals_changed(change, model, split, monkeypatch):
    plain = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="off"), **FAST)
    torch._dynamo.reset()
    CHANGES[change](monkeypatch)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="on"), **FAST)
    monkeypatch.undo()
    assert [warning.category for warning in seen] == [RunWarning]
    assert str(seen[0].message).startswith("The model could not be compiled")
    assert same(weights(found.model), weights(plain.model))
    assert found.history.rows == plain.history.rows


def test_the_warning_names_the_cause_and_not_the_wrapper(model, split, monkeypatch):
    monkeypatch.delattr(torch._inductor.compile_fx, "compile_fx")
    with pytest.warns(RunWarning, match="cannot import name 'compile_fx'"):
        unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="on"), **FAST)


@pytest.mark.parametrize("change", ["missing", "other arguments", "unimportable"])
def test_auto_decides_without_the_cache_when_torch_does_not_tell_where_it_is(change, monkeypatch):
    cache = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    if change == "missing":
        monkeypatch.delattr(cache, "cache_dir")
    elif change == "unimportable":
        cannot_import("torch._inductor")(monkeypatch)
    else:
        monkeypatch.setattr(cache, "cache_dir", lambda kind: kind)
    assert cache_folder() is None
    forwards = Forwards("auto", torch.device("cpu"))
    variant = compiled.Variant("model", False, True, False, (((8, 5), "torch.float32"), ((8,), "torch.int64")))
    assert forwards.marks.path(variant) is None
    forwards._steps, forwards._left, forwards._seconds = 10, 1000, 1e-3
    forwards._calls[variant], forwards._layers["model"] = 10, 16
    forwards._choose({})
    assert forwards.chosen == [variant]


def test_the_limit_of_variants_is_put_back():
    config = torch._dynamo.config
    name = next(name for name in ("recompile_limit", "cache_size_limit") if hasattr(config, name))
    before = getattr(config, name)
    with allow_variants(128):
        assert getattr(config, name) == 128
    assert getattr(config, name) == before


def names_in(file):
    """Yield every module that a file imports, and every chain of attributes and every text in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value


def test_only_one_file_of_the_package_imports_torchs_internals():
    folder = ROOT / "src" / "unweave"
    found = {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        for name in names_in(file)
        if any(name == private or name.startswith(f"{private}.") for private in PRIVATE)
    }
    assert found == {"engine/compiling/torch_internals.py"}


class FailingGraph:
    """What torch up to 2.11 does where recording fails: the stream stays changed, the allocator is told nothing."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("stream of the recording")

    def __exit__(self, *_):
        raise RuntimeError("operation failed due to a previous error during capture")


@pytest.mark.parametrize("told", [False, True])
def test_after_a_failed_recording_stream_and_allocator_are_as_before(told, monkeypatch):
    log = []

    def end(*given):
        log.append(("ended", *given))
        if told:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    for place, name, value in (
        (torch.cuda, "CUDAGraph", lambda: None),
        (torch.cuda, "current_stream", lambda device: "stream before"),
        (torch.cuda, "set_stream", log.append),
        (torch.cuda, "device", lambda device: contextlib.nullcontext()),
        (torch.cuda, "graph", lambda *_, **__: FailingGraph(log)),
        (recording, "side_stream", lambda device: None),
        (torch._C, "_cuda_endAllocateToPool", end),
        (torch._C, "_cuda_releasePool", lambda *given: log.append(("released", *given))),
    ):
        monkeypatch.setattr(place, name, value, raising=False)
    with pytest.raises(RuntimeError, match="previous error"):
        recording.record(lambda: [None], (0, 7), torch.device("cuda", 1))
    released = [] if told else [("released", 1, (0, 7))]
    assert log == ["stream of the recording", "stream before", ("ended", 1, (0, 7)), *released]
