"""A terminal of ASCII and a machine of little memory end in success or in one sentence."""

from __future__ import annotations

import io
import sys

import pytest

from unweave.cli import main


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [(["studies"], 0, "comparison"), (["methods", "tö-stage\udcff"], 2, r"There is no method 't\xf6-stage")],
)
def test_a_terminal_of_ascii_shows_what_it_can(monkeypatch, words, code, shown):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "argv", ["unweave", *words])
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    with pytest.raises(SystemExit) as ended:
        main()
    for stream in streams:
        stream.flush()
    said = [stream.buffer.getvalue().decode("ascii") for stream in streams]
    assert int(ended.value.code or 0) == code
    assert shown in "".join(said)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            True,
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (ImportError("libtorch.so: failed to map segment from shared object"), True),
        (RuntimeError("something else"), False),
        (ImportError("No module named x"), False),
    ],
)
def test_little_memory_is_said_in_a_sentence(monkeypatch, shell, error, is_memory):
    def fail(*_):
        raise error

    monkeypatch.setattr("unweave.methods.all_methods", fail)
    if is_memory:
        done = shell("methods")
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("unweave: The memory is not enough for this.")
        assert done.err.count("\n") == 1
    else:
        with pytest.raises(type(error)):
            shell("methods")


def test_the_demo_refuses_a_place_before_its_work(shell, tmp_path, monkeypatch):
    monkeypatch.setattr("unweave.lab.run_demo", lambda *_, **__: pytest.fail("the work began"))
    (tmp_path / "loop").symlink_to("loop")
    for place in ("/", tmp_path / "loop"):
        done = shell("demo", "--out", place)
        assert (done.code, done.err.count("\n")) == (2, 1)
