from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from unweave import UsageError
from unweave.benchmarks import find_benchmark
from unweave.methods import METHODS
from unweave.study import Cell, Store, plan, run_study
from unweave.study.store import COLUMNS

# One thread a process: two processes share two cores here, and every run must give the same bits.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
QUICK = ["--device", "cpu", "--methods", "original,retrain,ga,two-stage", "--seeds", "2", "--grid", "stage2_epochs=1"]


def command(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "unweave", "study", "digits", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
        env=ALONE,
    )


def table(folder):
    """The table without what depends on the clock and on the machine's memory."""
    frame = pd.read_parquet(folder / "results.parquet")
    return frame[~frame.metric.isin(["seconds", "peak_memory_bytes", "process_memory_bytes"])].reset_index(drop=True)


def test_a_plan_gives_settings_to_the_methods_that_have_them():
    cells = plan(["two-stage", "ft"], seeds=2, profiles=["paper"], grid={"alpha": ["0", "1"], "epochs": ["3"]})
    assert [cell.name for cell in cells] == [
        "two-stage.paper.alpha=0.seed-0",
        "two-stage.paper.alpha=0.seed-1",
        "two-stage.paper.alpha=1.seed-0",
        "two-stage.paper.alpha=1.seed-1",
        "ft.paper.epochs=3.seed-0",
        "ft.paper.epochs=3.seed-1",
    ]
    assert {cell.method for cell in plan(["all"], seeds=1)} == set(METHODS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["two-stge"], "seeds": 1}, "Did you mean 'two-stage'"),
        ({"methods": ["ft"], "seeds": 1, "grid": {"alpha": ["1"]}}, "No method of this study has the setting 'alpha'"),
        ({"methods": ["two-stage"], "seeds": 1, "grid": {"alpha": ["7"]}}, "at most 1"),
        ({"methods": ["ft"], "seeds": 1, "profiles": ["nope"]}, "profile 'nope'"),
        ({"methods": ["ft"], "seeds": 0}, "at least one seed"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(arguments, message):
    methods = arguments.pop("methods")
    with pytest.raises(UsageError, match=message):
        plan(methods, **arguments)


def test_cell_names_are_safe_for_files():
    cell = Cell(method="x/../y", seed=0, settings=(("a b", "<c>"),))
    assert "/" not in cell.name
    assert "<" not in cell.name


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that ran without interruption."""
    folder = tmp_path_factory.mktemp("study")
    done = command(*QUICK, "--out", "s", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "s"


def test_the_table_has_the_contracts_columns_and_the_runs_values(finished):
    frame = pd.read_parquet(finished / "results.parquet")
    assert tuple(frame.columns) == COLUMNS
    assert set(frame.method) == {"original", "retrain", "ga", "two-stage"}
    assert set(frame[frame.method == "two-stage"].variant) == {"stage2_epochs=1"}
    assert set(frame[frame.method == "ga"].profile) == {"official"}
    assert {"accuracy", "loss", "seconds", "sample_gradients"} <= set(frame.metric)
    scores = json.loads((finished / "cells" / "ga.seed-1" / "scores.json").read_text())
    chosen = frame.query("method == 'ga' and seed == 1 and split == 'test' and subset == 'remote'")
    chosen = chosen[chosen.metric == "accuracy"]
    assert chosen.value.tolist() == [scores["test"]["remote"]["accuracy"]]


def test_every_cell_is_compared_with_the_retrained_models_of_other_seeds(finished):
    frame = pd.read_parquet(finished / "results.parquet")
    tow = frame[frame.metric == "tow"].set_index(["method", "seed"]).value
    assert len(tow) == 8
    assert tow["retrain"].min() > tow["original"].max()
    references = json.loads((finished / "cells" / "retrain.seed-0" / "against-retrain.json").read_text())["references"]
    assert references == ["retrain.seed-1"]


def test_where_the_numbers_come_from_is_on_record(finished):
    (start,) = json.loads((finished / "provenance.json").read_text())["runs"]
    assert start["command"].startswith("unweave study digits --device cpu --methods original,retrain")
    assert {"commit", "date", "hardware", "versions"} <= set(start)


def test_the_originals_are_trained_once_and_shared(finished):
    assert sorted(path.name for path in (finished / "models").iterdir()) == [
        "original.seed-0.safetensors",
        "original.seed-1.safetensors",
    ]


def test_the_same_command_again_changes_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")}
    done = command(*QUICK, "--out", str(finished), cwd=finished.parent)
    assert done.returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")}


def test_a_killed_study_ends_like_one_that_was_not(finished, tmp_path):
    words = [sys.executable, "-m", "unweave", "study", "digits", *QUICK, "--out", "s"]
    for patience in (4.0, 6.0):
        process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=ALONE)
        time.sleep(patience)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = command(*QUICK, "--out", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(table(tmp_path / "s"), table(finished))


def test_two_processes_share_a_folder(finished, tmp_path):
    words = [sys.executable, "-m", "unweave", "study", "digits", *QUICK, "--out", "s"]
    both = [
        subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=ALONE)
        for _ in range(2)
    ]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    pd.testing.assert_frame_equal(table(tmp_path / "s"), table(finished))


def test_a_failed_cell_is_listed_and_the_rest_goes_on(tmp_path):
    wrong = ["--methods", "ga,original", "--seeds", "1", "--grid", "learning_rate=1e30"]
    done = command("--device", "cpu", *wrong, "--out", "s", cwd=tmp_path)
    assert done.returncode == 1
    assert "failed: ga learning_rate=1e30 seed 0" in done.stderr
    assert "Traceback" not in done.stderr
    store = Store.open(tmp_path / "s")
    assert [failure["method"] for failure in store.failures()] == ["ga"]
    assert {row["method"] for row in store.rows()} == {"original"}


def test_foreign_folders_are_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="not empty and holds no study"):
        Store.create(tmp_path, "digits")
    with pytest.raises(UsageError, match="holds no study"):
        Store.open(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        Store.open(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["thesis.txt"]
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "study.json").write_text(json.dumps({"format": "unweave-study", "schema": 99, "benchmark": "digits"}))
    with pytest.raises(UsageError, match="Update unweave"):
        Store.open(newer)
    other = Store.create(tmp_path / "other", "elsewhere")
    with pytest.raises(UsageError, match="holds a study of elsewhere"):
        run_study(find_benchmark("digits"), [], other.folder)
