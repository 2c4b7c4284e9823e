"""Compiled code in a file: written by `warm`, read where the environment names it, refused where it does not fit."""

from __future__ import annotations

import json
import os
import warnings

import pytest
import torch
from torch import nn

from tests.helpers.acting import FREE, act, forget_code
from unweave import Compute, unlearn, warm
from unweave.engine.compiling import forwards, portable
from unweave.errors import RunWarning, UsageError
from unweave.storage import sha256

CPU = Compute("cpu")
SHORT = {"learning_rate": 1e-2, "epochs": 2, "batch_size": 13, "guard": None}


@pytest.fixture
def read(monkeypatch, tmp_path):
    """What torch was given to read, on a machine that compiles; its own format does not matter here."""
    act(monkeypatch, tmp_path / "cache", seconds={**FREE, "in the background": 1e9})
    found = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"what torch writes\n\0", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", found.append)
    monkeypatch.setattr(portable, "_READ", set())
    return found


def written(model, split, folder, monkeypatch):
    path = warm(model, split, "ft", out=folder / "there" / "code", compute=CPU, learning_rate=1e-2, batch_size=13)
    forget_code(folder / "cache")
    monkeypatch.setenv(portable.NAMED, str(path))
    return path


def test_a_run_uses_the_code_in_a_file_as_soon_as_it_knows_that_it_pays(read, model, split, tmp_path, monkeypatch):
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    written(model, split, tmp_path, monkeypatch)
    assert all(torch.equal(model.state_dict()[key], tensor) for key, tensor in before.items())
    assert not forwards._WARM
    unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == [b"what torch writes\n\0"]
    assert {variant.samples for variant in forwards._WARM} == {13}
    unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert len(read) == 1, "the file was read twice"


def test_code_for_another_torch_is_left_alone_with_one_warning(read, model, split, tmp_path, monkeypatch):
    path = written(model, split, tmp_path, monkeypatch)
    path.write_bytes(path.read_bytes().replace(f"torch {torch.__version__}".encode(), b"torch 1.0"))
    with pytest.warns(RunWarning, match="it is for torch 1.0, and this is torch") as seen:
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert len(seen) == 1
    assert read == []


@pytest.mark.parametrize("content", [None, b"", b"{}\ncode", b"\x80\x04\n", b"[1]\n", b'{"a":' * 100_000])
def test_what_is_no_such_file_is_refused_before_torch_sees_it(content, read, model, split, tmp_path, monkeypatch):
    path = tmp_path / "code"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(portable.NAMED, str(path))
    with pytest.raises(UsageError, match=f"{portable.NAMED} names .*code"):
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == []


def test_a_damaged_file_is_refused(read, model, split, tmp_path, monkeypatch):
    path = written(model, split, tmp_path, monkeypatch)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="no intact file"):
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == []


@pytest.mark.parametrize("about", [{}, {"variants": [["kind"]]}, {"variants": 3}, {"variants": [None]}])
def test_a_list_of_variants_that_is_none_is_refused_before_torch_sees_the_code(
    about, read, model, split, tmp_path, monkeypatch
):
    head = {**portable.FORMAT, "sha256": sha256(b"code"), **about}
    (tmp_path / "code").write_bytes(json.dumps(head).encode() + b"\ncode")
    monkeypatch.setenv(portable.NAMED, str(tmp_path / "code"))
    with pytest.raises(UsageError, match="no intact file"):
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == []


def test_a_pipe_is_not_waited_for_and_its_name_cannot_forge_a_line(read, model, split, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "code")
    monkeypatch.setenv(portable.NAMED, str(tmp_path / "code"))
    with pytest.raises(UsageError, match="not a regular file"):
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    monkeypatch.delenv(portable.NAMED)
    path = written(model, split, tmp_path, monkeypatch)
    path.write_bytes(path.read_bytes().replace(f"torch {torch.__version__}".encode(), rb"x\nok signature: matches"))
    with pytest.warns(RunWarning, match=r"it is for x\\nok signature: matches, and"):
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == []


def test_no_file_is_read_unless_one_is_named(read, model, split, monkeypatch):
    monkeypatch.delenv(portable.NAMED, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        unlearn(model, split, "ft", compute=CPU, **SHORT)
    assert read == []


def test_warm_refuses_the_cpu_and_a_folder(split, tmp_path):
    with pytest.raises(UsageError, match="CUDA only, and this device is cpu"):
        warm(nn.Linear(5, 3), split, "ft", out=tmp_path / "code", compute=CPU)
    with pytest.raises(UsageError, match="is a folder"):
        warm(nn.Linear(5, 3), split, "ft", out=tmp_path, compute=CPU)
    assert not list(tmp_path.iterdir())
