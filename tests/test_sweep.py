"""The tool that chooses settings on held-out training data."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import synthetic

PLACE = Path(__file__).parents[1] / "tools" / "sweep.py"


@pytest.fixture
def sweep(monkeypatch):
    spec = importlib.util.spec_from_file_location("sweep", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "GRIDS", {"ga": {"learning_rate": module.times(1, 100), "epochs": module.of(1)}})
    return module


def rows(folder):
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_fifth_of_every_subset_is_held_out(sweep, split):
    kept, held = sweep.carve(split)
    for subset in ("forget", "adjacent", "remote"):
        assert len(held[subset]) == round(0.2 * len(split[subset]))
        assert sorted(np.concatenate([kept[subset], held[subset]])) == split[subset].tolist()


def test_every_setting_is_tried_once_and_the_best_is_kept(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UNWEAVE_CACHE", str(tmp_path / "cache"))
    synthetic.fashion_mnist(tmp_path / "data")
    out = tmp_path / "out"
    words = ["sweep.py", "fashion-mnist", "--option", "small=true", "--data", str(tmp_path / "data"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out), "--seconds", "0"])
    sweep.main()
    assert "goes on" in capsys.readouterr().out
    assert rows(out) == []
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    sweep.main()
    tried = rows(out)
    assert [json.loads(row["settings"])["learning_rate"] for row in tried] == [1e-4, 0.01]
    best = json.loads((out / "best.json").read_text())["ga"]
    assert best["score"] == max(float(row["score"]) for row in tried)
    assert capsys.readouterr().out.startswith("ga ")
    about = json.loads((out / "provenance.json").read_text())
    assert about["command"].startswith("python tools/sweep.py fashion-mnist")
    assert about["benchmark"] == "fashion-mnist"
    sweep.main()
    assert rows(out) == tried
