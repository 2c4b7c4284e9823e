"""Where a run may lie, and what stays there when its process is killed at the very end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from unweave import Checkpoints, Compute, StopWhen, UsageError, unlearn
from unweave.errors import Stopped
from unweave.runs import drop_original, kept_original, tidy, unfinished

QUICK = {"epochs": 2, "guard": None, "compute": Compute("cpu")}


@pytest.mark.parametrize("name", ["/", "loop", "loop/run", "a" * 230, "nul\0"])
def test_what_cannot_be_an_output_folder_is_refused_before_the_work(model, split, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    monkeypatch.setattr("unweave.api.unlearning.run_phases", lambda *_, **__: pytest.fail("the work began"))
    with pytest.raises(UsageError, match=r"output folder.*Choose a"):
        unlearn(model, split, "ga", out=name, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_process_stays_in_its_folder_when_a_run_takes_its_place(model, split, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    unlearn(model, split, "ga", out=".", **QUICK)
    assert Path.cwd() == tmp_path / "here"
    assert Path("scores.json").exists()
    assert not unfinished(Path()).exists()


@pytest.mark.parametrize("linked", ["run.unfinished", "run.unfinished/checkpoints", "run.unfinished/model.partial"])
def test_an_unfinished_run_that_leads_elsewhere_is_not_resumed(model, split, tmp_path, linked):
    how = {**QUICK, "callbacks": [Checkpoints(steps=1), StopWhen(lambda: True)]}
    with pytest.raises(Stopped):
        unlearn(model, split, "ga", out=tmp_path / "run", **how)
    outside, link = tmp_path / "outside", tmp_path / linked
    if link.exists():
        link.rename(outside)
    else:
        outside.mkdir()
    link.symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    with pytest.raises(UsageError, match="is a link"):
        unlearn(model, split, "ga", out=tmp_path / "run", resume=True, **QUICK)
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before


@pytest.fixture
def killed(model, split, tmp_path, monkeypatch):
    """The folder of a run whose process was killed right after it got its name."""
    monkeypatch.setattr("unweave.runs.run_folder.CheckpointFolder.prune", lambda *_, **__: None)
    unlearn(model, split, "ga", out=tmp_path / "run", callbacks=[Checkpoints(steps=1)], **QUICK)
    monkeypatch.undo()
    kept_original(tmp_path / "run").write_bytes(b"weights that know the data")
    (tmp_path / "run.original.safetensors.partial").write_bytes(b"some of them")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) > 1
    return tmp_path / "run"


@pytest.mark.parametrize("resume", [False, True])
def test_the_next_run_removes_the_checkpoints_of_one_that_was_killed_at_its_end(model, split, killed, resume):
    with pytest.raises(UsageError, match=r"finished|already exists"):
        unlearn(model, split, "ga", out=killed, resume=resume, **QUICK)
    assert list((killed / "checkpoints").iterdir()) == []


@pytest.mark.parametrize(
    "words", [["run", "digits", "--small", "--method", "ga", "--out"], ["evaluate"], ["audit"], ["record", "show"]]
)
def test_the_next_command_removes_the_original_too(killed, shell, words):
    done = shell(*words, killed)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert list((killed / "checkpoints").iterdir()) == []
    assert [path.name for path in killed.parent.iterdir()] == ["run"]


def test_nothing_is_removed_while_a_run_is_unfinished_or_where_none_is(tmp_path):
    kept = kept_original(tmp_path / "run")
    kept.write_text("needed")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "00-00000001.json").write_text("{}")
    tidy(tmp_path / "run", original=True)  # which is no finished run
    (tmp_path / "run" / "scores.json").write_text("{}")
    unfinished(tmp_path / "run").mkdir()
    tidy(tmp_path / "run", original=True)
    drop_original(tmp_path / "run")
    assert kept.exists()
    assert os.listdir(tmp_path / "run" / "checkpoints") == ["00-00000001.json"]


def test_checkpoints_behind_a_link_are_not_removed(killed, tmp_path):
    outside = tmp_path / "outside"
    (killed / "checkpoints").rename(outside)
    (killed / "checkpoints").symlink_to(outside)
    before = sorted(outside.iterdir())
    tidy(killed)
    assert sorted(outside.iterdir()) == before


def test_the_hash_of_the_split_is_for_the_owner_only(model, split, tmp_path):
    """With the data, the forgotten samples could be found from it by trying."""
    with pytest.raises(Stopped):
        unlearn(model, split, "ga", out=tmp_path / "run", callbacks=[StopWhen(lambda: True)], **QUICK)
    assert stat.S_IMODE((unfinished(tmp_path / "run") / "run.json").stat().st_mode) == 0o600
    unlearn(model, split, "ga", out=tmp_path / "run", resume=True, **QUICK)
    assert stat.S_IMODE((tmp_path / "run" / "run.json").stat().st_mode) == 0o600
