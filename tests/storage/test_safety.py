"""Files from strangers: nothing runs, hangs, touches what is outside the folder or needs the network."""

from __future__ import annotations

import ast
import json
import os
import pickle
import socket
import struct
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.places import ROOT
from unweave import Compute, Note, Request, Split, UsageError, load_weights, unlearn
from unweave.lab.audit import load_subject
from unweave.lab.benchmarks import find_benchmark
from unweave.record import check_model, read_record
from unweave.storage import inside, read_array, read_json, read_tensors
from unweave.storage.files import PICKLED

SOURCE = ROOT / "src" / "unweave"


# Pickles


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_pickles_are_refused_everywhere_and_never_opened(model, data, tmp_path):
    mark = tmp_path / "ran"
    for suffix in PICKLED:
        file = tmp_path / f"file{suffix}"
        file.write_bytes(pickle.dumps(Bomb(mark)))
        for open_it in (
            lambda path: load_weights(model, path),
            lambda path: Split.load(path, data),
            lambda path: load_subject(path, benchmark="digits"),
            read_record,
            read_tensors,
            read_json,
        ):
            with pytest.raises(UsageError, match=r"Pickled (weights|files) can run code when opened"):
                open_it(file)
    with pytest.raises(UsageError, match=r"convert them with `unweave convert "):
        load_weights(model, tmp_path / "file.pt")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(UsageError, match=r"pytorch_model\.bin is not a safetensors file"):
        load_weights(model, tmp_path / "hub")
    np.save(tmp_path / "objects.npy", np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="cannot be read as a NumPy array"):
        read_array(tmp_path / "objects.npy")
    disguised = tmp_path / "model.safetensors"
    disguised.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(UsageError, match="cannot be read"):
        load_weights(model, disguised)
    assert not mark.exists()


# Names in files


@given(st.text(max_size=30) | st.sampled_from(["/etc/passwd", "a/../../b", "..", "C:\\x", "a/./b", "x\0y", "~", "-"]))
def test_a_name_never_leads_out(name):
    folder = Path("some/folder")
    try:
        found = inside(folder, name)
    except UsageError:
        return
    assert found.resolve().is_relative_to(folder.resolve())


def test_links_are_followed_before_they_are_trusted(tmp_path):
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "good").symlink_to(folder / "there")
    for name in ("link", "link/x", "../outside", str(tmp_path / "outside"), None, 7, ""):
        with pytest.raises(UsageError, match="outside that folder"):
            inside(folder, name)
    assert inside(folder, "good") == folder / "good"


def test_weights_in_several_files(model, tmp_path):
    state = model.state_dict()
    names = list(state)
    safetensors.torch.save_file({name: state[name] for name in names[:2]}, tmp_path / "a.safetensors")
    safetensors.torch.save_file({name: state[name] for name in names[2:]}, tmp_path / "b.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    weight_map = dict.fromkeys(names[:2], "a.safetensors") | dict.fromkeys(names[2:], "b.safetensors")
    index.write_text(json.dumps({"weight_map": weight_map}))
    fresh = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    load_weights(fresh, tmp_path)
    assert all(torch.equal(state[name], tensor) for name, tensor in fresh.state_dict().items())
    for wrong, message in (
        ({"x": "../../secret.safetensors"}, "outside that folder"),
        ({"x": "/secret.safetensors"}, "outside that folder"),
        ({"x": "a.pt"}, "Pickled weights"),
        ({}, "no weight_map"),
        (["a.safetensors"], "no weight_map"),
        ({"x": "a.safetensors"}, "lacks 2.bias, 2.weight"),
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(UsageError, match=message):
            load_weights(fresh, tmp_path)


# Sizes


def memory():
    return psutil.Process().memory_info().rss


def test_sizes_are_checked_before_anything_is_allocated(model, data, tmp_path):
    """Sparse files: they claim gigabytes and hold nothing."""
    before, begun = memory(), time.monotonic()
    giant = tmp_path / "giant.safetensors"
    size = 8 * 2**30
    header = json.dumps({"0.weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    giant.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(giant, 8 + len(header) + size)
    with pytest.raises(UsageError, match="does not fit the model: it lacks"):
        load_weights(model, giant)
    liar = tmp_path / "liar.safetensors"
    for length in (2**60, 2**30, 9):
        liar.write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(UsageError, match="cannot be read"):
            load_weights(model, liar)
    text = tmp_path / "giant.json"
    text.write_text("{")
    os.truncate(text, 2**30)
    with pytest.raises(UsageError, match="more than the limit of"):
        Split.load(text, data)
    array = tmp_path / "giant.npy"
    np.lib.format.open_memmap(array, mode="w+", dtype=np.float32, shape=(4,)).flush()
    array.write_bytes(array.read_bytes().replace(b"(4,)", b"(9999999999,)")[:128] + bytes(16))
    with pytest.raises(UsageError, match="cannot be read as a NumPy array"):
        read_array(array)
    assert memory() - before < 2**28
    assert time.monotonic() - begun < 10


def test_pipes_folders_and_devices_are_no_files(model, tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match="not a regular file"):
        load_weights(model, tmp_path / "pipe.safetensors")
    for path in (tmp_path / "pipe.json", tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="not a regular file"):
            read_json(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": NaN}', "NaN is not valid JSON"),
        (b"\xff\xfe", "cannot be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_odd_json_is_refused_in_one_sentence(tmp_path, content, message):
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_json(tmp_path / "file.json")


# Fuzz

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FUZZ = hypothesis_settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def listing(folder):
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@FUZZ
@given(change=st.dictionaries(st.sampled_from(["format", "version", "samples", "forget", "remote", "hash"]), VALUES))
def test_an_odd_split_file_never_ends_in_a_traceback(split, data, tmp_path, change):
    path = tmp_path / "split.json"
    path.write_text(json.dumps(json.loads(split.to_json()) | change))
    before = listing(tmp_path)
    try:
        assert len(Split.load(path, data).samples) == 60
    except UsageError as error:
        assert str(error)  # noqa: PT017
    assert listing(tmp_path) == before


@FUZZ
@given(content=st.binary(max_size=300))
def test_bytes_are_no_split_file_and_no_weights(model, data, tmp_path, content):
    for name in ("x.json", "x.safetensors", "x.npy"):
        (tmp_path / name).write_bytes(content)
    before = listing(tmp_path)
    for read in (
        lambda: Split.load(tmp_path / "x.json", data),
        lambda: load_weights(model, tmp_path / "x.safetensors"),
        lambda: read_array(tmp_path / "x.npy"),
        lambda: read_record(tmp_path / "x.json"),
    ):
        with pytest.raises(UsageError):
            read()
    assert listing(tmp_path) == before


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The folder of a run that an audit opens, and a benchmark that loads in no time."""
    benchmark = find_benchmark("digits")
    task, folder = benchmark.load(), tmp_path_factory.mktemp("run") / "run"
    unlearn(
        benchmark.initial(0),
        task.train,
        "original",
        out=folder,
        compute=Compute("cpu"),
        callbacks=[Note(**benchmark.about(task))],
    )
    return folder, task


@FUZZ
@given(
    change=st.dictionaries(
        st.sampled_from(["benchmark", "options", "method", "settings", "seed", "split", "limits"]),
        VALUES | st.sampled_from(["digits", "ga", "two-stage", {"small": "x"}, {"alpha": 0.5, "mean_sign": -1}]),
    )
)
def test_an_odd_configuration_never_ends_in_a_traceback(run_folder, change):
    folder, task = run_folder
    kept = configuration(folder)
    try:
        write_configuration(folder, kept | change)
        before = listing(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unweave.lab.benchmarks.digits.load", lambda *_: task)
            try:
                load_subject(folder)
            except UsageError as error:
                assert str(error)  # noqa: PT017
        assert listing(folder) == before
    finally:
        write_configuration(folder, kept)


@pytest.mark.parametrize(
    "value", ["os:system", "/etc", "../../secret", "somebody/model", "torchvision:resnet18", "a/../../b"]
)
def test_a_strangers_configuration_cannot_name_code_places_or_the_hub(run_folder, value, monkeypatch):
    folder, _ = run_folder
    kept = configuration(folder)
    monkeypatch.setattr("unweave.lab.audit.subject.find_benchmark", lambda *_, **__: pytest.fail("it was believed"))
    try:
        write_configuration(folder, kept | {"options": {"model": value}})
        with pytest.raises(UsageError, match="If you trust it, give it yourself: --option model="):
            load_subject(folder)
    finally:
        write_configuration(folder, kept)


class BelievedError(Exception):
    """Stands for a benchmark that is looked for."""


@pytest.mark.parametrize("data", [None, "folder"])
@pytest.mark.parametrize("value", ["{outside}", "..", "../outside", "mine/../../outside", "mine/model"])
def test_a_strangers_configuration_cannot_name_a_place_outside_even_where_a_model_is(
    run_folder, value, data, tmp_path, monkeypatch
):
    def believe(*_, **__):
        raise BelievedError("it was believed")

    mine, outside = tmp_path / "folder" / "mine" / "model", tmp_path / "outside"
    for place in (mine, outside, tmp_path):
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "folder" if data is None else tmp_path)
    monkeypatch.setattr("unweave.lab.audit.subject.find_benchmark", believe)
    folder, _ = run_folder
    kept = configuration(folder)
    try:
        write_configuration(folder, kept | {"options": {"model": value.format(outside=outside)}})
        expected, words = (UsageError, "a place outside the data folder")
        if value == "mine/model":
            expected, words = (BelievedError, "it was believed")
        with pytest.raises(expected, match=words):
            load_subject(folder, data=data)
    finally:
        write_configuration(folder, kept)


# The network, and what the source may not contain


def test_nothing_here_needs_the_network(model, split, tmp_path, monkeypatch):
    def refuse(*arguments, **more):
        raise AssertionError("the network was asked")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    unlearn_on_record(
        model, split, "ga", out=tmp_path / "run", test=split, request=Request(id="x"), compute=Compute("cpu")
    )
    record = read_record(tmp_path / "run" / "record.json")
    assert check_model(record, read_tensors(tmp_path / "run" / "model.safetensors")).holds
    task = find_benchmark("digits").load()
    assert len(task.train.samples)


def calls(tree):
    """Yield the dotted name and the keyword arguments of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_source_opens_nothing_that_runs_code():
    forbidden = {
        "torch.load",
        "pickle.load",
        "pickle.loads",
        "pickle.Unpickler",
        "joblib.load",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "eval",
        "exec",
        "os.system",
        "os.popen",
    }
    modules = {"urllib", "requests", "httpx", "http", "ftplib", "socket", "dill", "cloudpickle", "marshal", "shelve"}
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        text = file.read_text()
        tree = ast.parse(text)
        for name, keywords in calls(tree):
            where = f"{file.name}: {name}"
            if name == "torch.load" and file.name == "unpickling.py":  # `unweave convert`, in a process of its own
                assert keywords.get("weights_only") == "True", where
                continue
            assert name not in forbidden, where
            assert keywords.get("shell", "False") == "False", where
            assert keywords.get("trust_remote_code", "False") == "False", where
            if name in ("np.load", "numpy.load"):
                assert keywords.get("allow_pickle") == "False", where
            if name.endswith("from_pretrained") and not name.split(".")[-2].endswith(
                ("Tokenizer", "Processor", "Config")
            ):
                assert keywords.get("use_safetensors") == "True", where
        assert not {name.split(".")[0] for name in imported(tree)} & modules, file.name
        for node in ast.walk(tree):  # the user's choice to stay offline is nobody else's to change
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"))
