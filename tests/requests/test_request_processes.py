"""`torchrun -m unweave unlearn`: two processes give what one gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import safetensors.torch

from tests.helpers.own_files import sentences, write_table, write_text_checkpoint

TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "unweave"]
WORDS = "unlearn --model ckpt --train train.parquet --forget person_id=3 --method ga --set optimizer=sgd --no-guard"
MORE = "--set normalisation=eval --set learning_rate=1e-3 --set epochs=2 --request-id 7 --device cpu --resume"


def test_two_processes_give_what_one_gives(tmp_path, shell, monkeypatch):
    write_text_checkpoint(tmp_path / "ckpt")
    write_table(tmp_path / "train.parquet", sentences())
    monkeypatch.chdir(tmp_path)
    words = [*WORDS.split(), *MORE.split()]
    done = subprocess.run(
        [*TOGETHER, *words, "--out", "together"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Forgotten:") == 1
    assert shell(*words, "--out", "alone").code == 0
    mine, theirs = (
        safetensors.torch.load_file(tmp_path / name / "model" / "model.safetensors") for name in ("alone", "together")
    )
    assert all(mine[name].numpy() == pytest.approx(theirs[name].numpy(), abs=1e-5) for name in mine)
    for name in ("split.json", "request.yaml", "record.json"):
        assert (tmp_path / "together" / name).exists()
    alone, together = (json.loads((tmp_path / name / "scores.json").read_text()) for name in ("alone", "together"))
    assert alone["train"]["forget"]["loss"] == pytest.approx(together["train"]["forget"]["loss"], abs=1e-4)
