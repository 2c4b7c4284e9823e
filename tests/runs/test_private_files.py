"""Exact numbers tell who was forgotten: what a run or a study writes of them is for its owner only."""

from __future__ import annotations

import stat

import pytest
import torch
from torch import nn

from tests.helpers.tiny import tiny
from unweave import Checkpoints, Compute, Split, Stopped, StopWhen, unlearn
from unweave.api import Verdict
from unweave.cli.beginning import _keep
from unweave.engine import Cost
from unweave.evaluation import Scores
from unweave.lab.study import plan, run_study
from unweave.runs import unfinished
from unweave.runs.model_card import model_card
from unweave.storage import private_folder

DATA = (torch.randn(60, 5, generator=torch.Generator().manual_seed(1)), torch.arange(60) // 20)
QUICK = {"guard": None, "compute": Compute("cpu"), "stage1_epochs": 1, "stage2_epochs": 1}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def run(folder, *, resume=False, **more):
    torch.manual_seed(0)
    split = Split(DATA, forget=[7], adjacent=range(8, 20), remote=range(20, 60))
    callbacks = [Checkpoints(steps=1), *more.get("callbacks", ())]
    return unlearn(
        nn.Linear(5, 3), split, "two-stage", profile="released", out=folder, resume=resume, **QUICK, callbacks=callbacks
    )


def test_only_the_model_of_a_run_without_a_record_is_for_others(tmp_path):
    run(tmp_path / "run")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    private = {path.name for path in files if mode(path) == 0o600}
    assert {"run.json", "scores.json", "history.jsonl", "verdict.md", "report.html"} <= private
    assert {path.name for path in files} - private == {"model.safetensors"}


def test_checkpoints_of_a_stopped_run_are_private(tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path / "run", callbacks=[StopWhen(lambda: True)])
    files = [path for path in unfinished(tmp_path / "run").rglob("*") if path.is_file() and "lock" not in path.name]
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert {path.name: mode(path) for path in files} == {path.name: 0o600 for path in files}


def test_the_original_that_a_command_keeps_is_private(tmp_path):
    _keep(nn.Linear(2, 2), tmp_path / "run.original.safetensors")
    assert mode(tmp_path / "run.original.safetensors") == 0o600


def test_a_split_file_is_private(tmp_path):
    Split(DATA, forget=[7], adjacent=range(8, 20), remote=range(20, 60)).save(tmp_path / "split.json")
    assert mode(tmp_path / "split.json") == 0o600


def test_the_folder_of_a_study_is_private(tmp_path):
    benchmark = tiny()
    run_study(benchmark, plan(["original"], seeds=1, benchmark=benchmark), tmp_path / "new" / "study", device="cpu")
    assert mode(tmp_path / "new" / "study") == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared").chmod(0o755)
    private_folder(tmp_path / "shared")
    assert mode(tmp_path / "shared") == 0o755
    private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a") != 0o700


def test_a_model_card_shows_what_a_record_may_publish():
    """It is uploaded with the model. Its exact accuracies told whether a single forgotten sample was recognised."""
    config = {"settings": {}}
    rows = [{"split": "train", "subset": "remote", "before": 0.98, "value": 0.97, "step": 0.01}]
    rows.append({"split": "test", "subset": "remote", "value": 0.9735, "step": 0.0005})
    card = model_card(
        config, Scores({}), "Forgotten: yes. Kept: yes.", {"forget": 1}, rows=rows, library="transformers"
    )
    assert "| train | remote | 98% | 97% | 1% |" in card
    assert "| test | remote | – | 97.35% | 0.05% |" in card


def test_a_verdict_in_short_has_no_numbers():
    row = {"split": "train", "subset": "forget", "before": 1.0, "after": 0.0, "samples": 1}
    verdict = Verdict(forgotten=True, kept=None, rows=(row,), cost=Cost(seconds=1.5, sample_gradients=640))
    assert verdict.in_short == "Forgotten: yes. Kept: not known."
