"""The page "What we tried: unweave": its tables are those of the committed runs, each with its commit and command."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "what-we-tried-unweave.md"
RESULTS = ROOT / "results"


@pytest.fixture
def tried(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("tried")


@pytest.mark.parametrize(
    ("benchmark", "table"),
    [
        *(("digits", table) for table in ("erase", "targets", "few", "dial", "references")),
        ("fashion-mnist", "fashion"),
        ("cifar100-resnet18", "cifar"),
        ("cifar100-resnet18", "cifar-retrain"),
    ],
)
def test_the_page_shows_what_was_measured(tried, benchmark, table):
    folder = RESULTS / benchmark / "tried"
    assert tried.show(table, folder) in PAGE.read_text()
    told = json.loads((folder / "provenance.json").read_text())[table]
    assert len(told["commit"]) == 40, "the source had uncommitted changes"
    assert told["command"].startswith(f"python tools/tried.py {table} ")


def test_what_is_there_is_not_run_again(tried, tmp_path, monkeypatch):
    calls = []

    def table(place):
        for seed in range(3):
            yield {"variant": "a", "forget": 9, "seed": seed}, lambda seed=seed: run(seed)

    def run(seed):
        calls.append(seed)
        if seed == 1 and len(calls) == 2:
            raise KeyboardInterrupt
        if seed == 2:
            raise tried.RunError("It fell\napart.")
        return dict.fromkeys((*tried.ACCURACIES, "bound", "gradients"), 0.25)

    monkeypatch.setitem(tried.TABLES, "erase", lambda place: [])
    tried.complete("erase", tmp_path, tried.trials.Place())  # stopped before its first row
    monkeypatch.setitem(tried.TABLES, "erase", table)
    with pytest.raises(KeyboardInterrupt):
        tried.complete("erase", tmp_path, tried.trials.Place())
    tried.complete("erase", tmp_path, tried.trials.Place())
    assert calls == [0, 1, 1, 2]
    assert (tmp_path / "erase.csv").read_text().count("variant") == 1
    shown = tried.show("erase", tmp_path)
    assert "a (1 of 3 diverged) | 25.0 / 25.0 / 25.0 | 25.0 / 25.0 / 25.0 | 25.0 |" in shown


def test_a_fifth_of_every_class_is_held_out_and_nothing_is_in_both(tried, digits):
    task = digits[1]
    kept, held = tried.trials.carve(task, most=50)
    fine = np.array(task.fine)
    rows = [
        np.concatenate([split[subset] for subset in ("forget", "adjacent", "remote")]) for split in (kept.train, held)
    ]
    assert [np.bincount(fine[some]).tolist() for some in rows] == [[40] * 10, [10] * 10]
    assert len(np.intersect1d(*rows)) == 0
    assert set(fine[held.forget]) == {9}


def test_two_directions_leave_the_mean_as_it_is_too(tried, model, split):
    from unweave.engine import Workbench
    from unweave.maths import gram_matrix
    from unweave.methods.unweave import Unweave

    phase = tried.trials.TwoDirections(Unweave(restore=1e-9, learning_rate=1e-12))
    phase.prepare(Workbench(model.double(), _double(split), device=tried.trials.CPU))
    phase.begin()
    phase.logged = {}
    mean = phase.bench.gradient(phase.bench.losses(batch).mean() for batch in phase.forget.in_order())
    _, uphill = super(tried.trials.TwoDirections, phase)._distance()
    phase.step(0)
    products = gram_matrix([phase.velocity, mean, uphill])
    assert products[0, 0] > 0
    assert max(abs(products[0, 1]), abs(products[0, 2])) < 1e-9 * products.diagonal().max()


def _double(split):
    from unweave import Split

    inputs, labels = split.samples.dataset.data
    return Split((inputs.double(), labels), split.forget, split.adjacent, split.remote)
