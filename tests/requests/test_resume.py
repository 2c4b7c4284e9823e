"""A job scheduler repeats one command: it begins, goes on after SIGKILL, and leaves a finished run as it is."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.helpers.own_files import sentences, write_table, write_text_checkpoint
from tests.helpers.torture import in_a_process
from unweave.cli import main
from unweave.engine import History
from unweave.runs import unfinished

COMMAND = "unlearn --model ckpt --train train.parquet --forget person_id=3 --resume --no-guard --device cpu"
METHOD = "--method ga --set epochs=6 --set batch_size=2 --checkpoint-steps 2"


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    write_text_checkpoint(tmp_path / "ckpt")
    write_table(tmp_path / "train.parquet", sentences())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(out):
    return [*COMMAND.split(), *METHOD.split(), "--out", out]


def killed(out, *, at):
    """Run the command in a process that ends by SIGKILL at a step."""
    count = 0
    add = History.add

    def counted(self, *arguments):
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return add(self, *arguments)

    def work():
        History.add = counted
        sys.argv = ["unweave", *words(out)]
        main()

    return in_a_process(work)


def test_the_same_command_begins_resumes_and_ends(at_home, shell):
    assert killed("run", at=8) == -signal.SIGKILL
    assert unfinished(at_home / "run").exists()
    assert not (at_home / "run").exists()
    done = shell(*words("run"))
    assert done.code == 0, done.err
    whole = shell(*words("whole"))
    assert whole.code == 0, whole.err
    for name in ("history.jsonl", "model/model.safetensors", "split.json"):
        assert (at_home / "run" / name).read_bytes() == (at_home / "whole" / name).read_bytes()
    before = {path: path.stat().st_mtime_ns for path in (at_home / "run").rglob("*")}
    again = shell(*words("run"))
    assert again.code == 0, again.err
    assert "is finished: nothing is left to do" in again.err
    assert again.out.startswith("Forgotten:")
    assert {path: path.stat().st_mtime_ns for path in (at_home / "run").rglob("*")} == before


def test_the_decoded_copies_are_gone_after_a_kill(at_home, tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("copies")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert killed("run", at=3) == -signal.SIGKILL
    assert list(place.iterdir()) == []
