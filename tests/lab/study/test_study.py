from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.places import ROOT
from tests.helpers.studies import table
from tests.helpers.tiny import tiny
from unweave import Compute, RunError, UsageError, Watch, unlearn
from unweave.cli import app
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import (
    PRESETS,
    Cell,
    Store,
    describe_preset,
    each_once,
    find_presets,
    plan,
    preset_cells,
    run_study,
)
from unweave.lab.study.adjacency import regroup
from unweave.lab.study.originals import take_originals
from unweave.lab.study.table import COLUMNS
from unweave.runs import unfinished
from unweave.storage import Lock


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
    assert {cell.method for cell in plan(["all"], seeds=1)} == set(ON_ANYTHING)


def test_seeds_may_be_run_apart(tmp_path):
    methods, whole = ["original", "retrain", "ga"], tmp_path / "whole"
    run_study(tiny(), plan(methods, seeds=2, benchmark=tiny()), whole, device="cpu")
    for first in (1, 0):
        cells = plan(methods, seeds=1, first_seed=first, benchmark=tiny())
        assert {cell.seed for cell in cells} == {first}
        run_study(tiny(), cells, tmp_path / "parts", device="cpu")
    pd.testing.assert_frame_equal(table(whole), table(tmp_path / "parts"))
    named = preset_cells(PRESETS["retrain"], tiny(), seeds=2, first_seed=3)
    assert {cell.seed for cell in named} == {3, 4}


def test_precision_and_compiling_hold_for_all_that_a_study_trains_and_looks_at(tmp_path):
    cells = plan(["retrain", "ga"], seeds=1)
    stores = {
        precision: run_study(tiny(), cells, tmp_path / precision, device="cpu", precision=precision, compile="off")
        for precision in ("float32", "bfloat16")
    }
    for precision, store in stores.items():
        config = configuration(store.cells / "ga.seed-0")
        assert (config["precision"], config["compile"]) == (precision, "off")
        for file in ("scores.json", "against-retrain.json"):
            assert json.loads((store.cells / "ga.seed-0" / file).read_text())["precision"] == precision
    first, second = (load_file(store.models / "original.seed-0.safetensors") for store in stores.values())
    assert any(not torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("wrong", [{"precision": "float16"}, {"compile": "always"}])
def test_a_precision_that_there_is_not_is_refused_before_a_folder_is_made(tmp_path, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong.values()))):
        run_study(tiny(), plan(["ga"], seeds=1), tmp_path / "s", device="cpu", **wrong)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["two-stge"], "seeds": 1}, "Did you mean 'two-stage'"),
        ({"methods": ["ft"], "seeds": 1, "grid": {"alpha": ["1"]}}, "No method of this study has the setting 'alpha'"),
        ({"methods": ["two-stage"], "seeds": 1, "grid": {"alpha": ["7"]}}, "at most 1"),
        ({"methods": ["ft"], "seeds": 1, "profiles": ["nope"]}, "profile 'nope'"),
        ({"methods": ["ft"], "seeds": 0}, "at least one seed"),
        ({"methods": [], "seeds": 1}, "at least one method"),
        ({"methods": ["two-stage"], "seeds": 1, "adjacency": ["neighbors"]}, "Did you mean 'neighbours'"),
        ({"methods": ["two-stage"], "seeds": 1, "adjacency": ["remote-to-adjacent:many"]}, "between 0 and 1"),
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


def test_a_settings_default_on_the_benchmark_makes_no_variant():
    grid = {"alpha": ["0", "0.5"], "stage2_epochs": ["3", "4"]}
    variants = [cell.variant for cell in plan(["two-stage"], seeds=1, grid=grid, benchmark=tiny())]
    assert variants == ["alpha=0", "alpha=0 stage2_epochs=4", "", "stage2_epochs=4"]
    retrain = plan(["retrain"], seeds=1, grid={"epochs": ["10", "11"]}, benchmark=tiny())
    assert [cell.variant for cell in retrain] == ["", "epochs=11"]


def test_every_named_study_is_the_papers():
    benchmark = find_benchmark("digits")
    variants = {
        name: {(cell.method, cell.variant) for cell in preset_cells(preset, benchmark, seeds=1)} - {("original", "")}
        for name, preset in PRESETS.items()
    }
    every = {(name, "") for name in ON_ANYTHING} - {("original", "")}
    ours = ("two-stage", "")
    assert variants == {
        "comparison": every,
        "without-w2": {ours, ("pgd", "")},
        "alpha": {ours, ("two-stage", "alpha=0"), ("two-stage", "alpha=1")},
        "mu": {ours, ("two-stage", "penalty=5"), ("two-stage", "penalty=20")},
        "stage-1": {
            ours,
            ("two-stage", "constrain_adjacent=true"),
            ("two-stage", "stage2_epochs=0"),
            ("two-stage", "stage2_epochs=0 constrain_adjacent=true"),
        },
        "noise": {
            ours,
            ("two-stage", "adjacency=remote-to-adjacent:0.2"),
            ("two-stage", "adjacency=adjacent-to-remote:0.2"),
        },
        "neighbours": {ours, ("two-stage", "adjacency=neighbours")},
        "retrain": {ours, ("retrain", "")},
        "cost": every,
        "dynamics": {ours, ("pgd", "")},
        "membership": every,
    }
    cells = [cell for preset in find_presets("all") for cell in preset_cells(preset, benchmark, seeds=2)]
    union = each_once(cells)
    assert len(union) == 2 * len({place for found in variants.values() for place in found} | {("original", "")})
    assert {cell.method for cell in union if cell.watch} == {"two-stage", "pgd"}
    with pytest.raises(UsageError, match="Did you mean 'alpha'"):
        find_presets("alhpa")


def test_adjacency_regroups_the_kept_samples_only():
    task, original = tiny().load(), tiny().initial(0)

    def regrouped(kind, seed=0):
        return regroup(task.train, kind, original=lambda: original, seed=seed, device="cpu")

    clean, far, near = (regrouped(kind) for kind in ("classes", "remote-to-adjacent:0.2", "adjacent-to-remote:0.2"))
    assert clean == task.train
    assert len(set(far.adjacent) - set(clean.adjacent)) == 8 == len(clean.remote) // 5
    assert set(clean.adjacent) < set(far.adjacent)
    assert len(set(near.remote) - set(clean.remote)) == 2 == round(len(clean.adjacent) / 5)
    assert regrouped("remote-to-adjacent:0.2") == far != regrouped("remote-to-adjacent:0.2", seed=1)
    found = regrouped("neighbours")
    assert len(found.adjacent) == 5 == round(0.1 * 52)  # the paper's fixed tenth
    for split in (far, near, found):
        assert split.forget.tolist() == task.train.forget.tolist()
        assert split.samples is task.train.samples


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Every named study of the tiny benchmark, two seeds, in one folder."""
    folder = tmp_path_factory.mktemp("study") / "s"
    benchmark = tiny(forget="first")
    for preset in find_presets("all"):
        cells = preset_cells(preset, benchmark, seeds=2)
        if preset.name in ("noise", "dynamics"):  # dynamics repeats some cells of noise, watched
            run_study(benchmark, cells, folder, device="cpu", presets={preset.name: describe_preset(preset, cells)})
    cells = preset_cells(PRESETS["retrain"], benchmark, seeds=2)
    run_study(benchmark, cells, folder, device="cpu", presets={"retrain": describe_preset(PRESETS["retrain"], cells)})
    return folder


def test_studies_share_a_folder(finished):
    about = json.loads((finished / "study.json").read_text())
    assert (about["benchmark"], about["options"]) == ("tiny", {"forget": "first"})
    assert list(about["presets"]) == ["noise", "dynamics", "retrain"]
    assert ["two-stage", "released", "adjacency=adjacent-to-remote:0.2"] in about["presets"]["noise"]["rows"]
    frame = pd.read_parquet(finished / "results.parquet")
    assert tuple(frame.columns) == COLUMNS
    assert set(frame.benchmark) == {"tiny forget=first"}
    assert set(zip(frame.method, frame.variant, strict=True)) == {
        ("original", ""),
        ("retrain", ""),
        ("pgd", ""),
        ("two-stage", ""),
        ("two-stage", "adjacency=adjacent-to-remote:0.2"),
        ("two-stage", "adjacency=remote-to-adjacent:0.2"),
    }


def test_another_adjacency_is_scored_on_the_benchmarks_own(finished):
    frame = pd.read_parquet(finished / "results.parquet")
    samples = {
        path.parent.name: json.loads(path.read_text())["train"]["adjacent"]["samples"]
        for path in finished.glob("cells/*/scores.json")
    }
    assert set(samples.values()) == {12}
    values = frame[(frame.metric == "loss") & (frame.split == "train") & (frame.subset == "adjacent")]
    assert values.groupby("seed").value.nunique().tolist() == [6, 6]  # every cell gave another model
    config = configuration(next(finished.glob("cells/*adjacent-to-remote*0")))
    assert config["judged_on"] == tiny().load().train.hash != config["split"]


def test_watching_changes_nothing_but_the_history(finished, tmp_path):
    cells = plan(["two-stage"], seeds=1, benchmark=tiny())
    run_study(tiny(), cells, tmp_path / "s", device="cpu")
    watched, plain = (
        [json.loads(line) for line in (folder / "cells/two-stage.seed-0/history.jsonl").read_text().splitlines()]
        for folder in (finished, tmp_path / "s")
    )
    names = {f"{mark}{subset}_accuracy" for mark in ("", "test_") for subset in ("forget", "adjacent", "remote")}
    assert names <= set(watched[0])
    assert [{key: row[key] for key in other} for row, other in zip(watched, plain, strict=True)] == plain
    ours, theirs = table(tmp_path / "s"), table(finished).query("method == 'two-stage' and variant == '' and seed == 0")
    for metric in ("accuracy", "loss", "sample_forwards", "sample_gradients"):
        assert ours[ours.metric == metric].value.tolist() == theirs[theirs.metric == metric].value.tolist() != []


def test_watching_costs_nothing(model, split, monkeypatch):
    looks = []

    def slow(self, *_):
        time.sleep(0.02)
        looks.append(None)
        return {"forget_accuracy": 0.0}

    monkeypatch.setattr("unweave.engine.watch.Watch._look", slow)
    model.train()
    result = unlearn(model, split, method="ga", epochs=40, compute=Compute("cpu"), callbacks=[Watch(every=1)])
    assert len(looks) == len(result.history) == 40
    assert result.cost.seconds < 0.02 * len(looks)
    assert all(module.training for module in result.model.modules())


def test_every_cell_is_compared_with_the_retrained_models_of_other_seeds(finished):
    frame = pd.read_parquet(finished / "results.parquet")
    tow = frame[frame.metric == "tow"].set_index(["method", "variant", "seed"]).value
    assert len(tow) == 12
    references = json.loads((finished / "cells/retrain.seed-0/against-retrain.json").read_text())["references"]
    assert references == ["retrain.seed-1"]


def test_the_same_again_changes_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")}
    cells = preset_cells(PRESETS["dynamics"], tiny(forget="first"), seeds=2)
    run_study(tiny(forget="first"), cells, finished, device="cpu")
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")}


def test_the_originals_are_trained_once_and_shared(finished):
    assert sorted(path.name for path in (finished / "models").iterdir()) == [
        "original.seed-0.safetensors",
        "original.seed-1.safetensors",
    ]


def test_a_time_limit_leaves_everything_to_the_next_start(tmp_path, monkeypatch):
    cells = plan(["original", "retrain", "two-stage"], seeds=1, benchmark=tiny(), watch=True)
    whole = run_study(tiny(), cells, tmp_path / "whole", device="cpu")
    clock = [0.0]
    monkeypatch.setattr(
        "unweave.lab.study.study.time.monotonic", lambda: clock.__setitem__(0, clock[0] + 1) or clock[0]
    )
    starts = 0
    store = Store(tmp_path / "pieces")
    while not all(map(store.is_done, cells)) if starts else True:
        run_study(tiny(), cells, tmp_path / "pieces", device="cpu", time_limit=30)
        starts += 1
        assert (tmp_path / "pieces" / "results.parquet").exists()
        assert starts < 60
    assert starts > 3
    assert not list((tmp_path / "pieces").rglob("*.unfinished"))
    run_study(tiny(), cells, tmp_path / "pieces", device="cpu")  # the time may have been up before the last comparison
    pd.testing.assert_frame_equal(table(tmp_path / "pieces"), table(whole.folder))
    for path in whole.folder.glob("cells/*/history.jsonl"):
        assert path.read_text() == (tmp_path / "pieces" / path.relative_to(whole.folder)).read_text()


@pytest.mark.parametrize(
    ("keep", "left"), [("originals", ["models", "models", "retrain.seed-0", "retrain.seed-1"]), ("none", [])]
)
def test_weights_go_when_nothing_needs_them_any_more(tmp_path, keep, left):
    cells = plan(["original", "retrain", "two-stage"], seeds=2, benchmark=tiny())
    store = run_study(tiny(), cells, tmp_path / "s", device="cpu", keep=keep)
    assert sorted(path.parent.name for path in (tmp_path / "s").rglob("*.safetensors")) == left
    kept = run_study(tiny(), cells, tmp_path / "all", device="cpu")
    pd.testing.assert_frame_equal(table(store.folder), table(kept.folder))
    again = run_study(tiny(), plan(["pgd"], seeds=1, benchmark=tiny()), store.folder, device="cpu")
    measures = {row["metric"] for row in again.rows() if row["method"] == "pgd"}
    assert "accuracy" in measures
    assert ("tow" in measures) == bool(left), "what is added later is compared too, where that can be"
    with pytest.raises(UsageError, match="Did you mean 'none'"):
        run_study(tiny(), cells, tmp_path / "s", device="cpu", keep="non")


def test_a_failed_cell_is_listed_and_the_others_run(tmp_path):
    cells = plan(["ga", "original"], seeds=1, grid={"learning_rate": ["1e30"]}, benchmark=tiny())
    store = run_study(tiny(), cells, tmp_path / "s", device="cpu")
    assert [(failure["method"], failure["profile"]) for failure in store.failures()] == [("ga", "official")]
    assert {row["method"] for row in store.rows()} == {"original"}
    others = plan(["original"], seeds=1, benchmark=tiny())
    run_study(tiny(), others, tmp_path / "s", device="cpu")
    assert [failure["method"] for failure in store.failures()] == ["ga"]
    assert (len(store.failures(cells)), store.failures(others)) == (1, [])


def test_a_damaged_cell_is_named_and_run_again_once_it_is_gone(tmp_path):
    cells = plan(["original", "ga"], seeds=1, benchmark=tiny())
    store = run_study(tiny(), cells, tmp_path / "s", device="cpu")
    before, file = store.rows(), store.cells / "ga.seed-0" / "scores.json"
    file.write_text('{"metrics": [')
    with pytest.raises(RunError, match=r"scores.json cannot be read: .*Remove .*ga.seed-0; the study then runs"):
        run_study(tiny(), cells, tmp_path / "s", device="cpu")
    shutil.rmtree(file.parent)
    after = run_study(tiny(), cells, tmp_path / "s", device="cpu").rows()
    assert [row["value"] for row in after if row["metric"] == "loss"] == [
        row["value"] for row in before if row["metric"] == "loss"
    ]


def test_a_cell_that_another_process_is_just_finishing_is_not_a_result_yet(tmp_path):
    store = run_study(tiny(), plan(["original", "ga"], seeds=1, benchmark=tiny()), tmp_path / "s", device="cpu")
    folder = store.cells / "ga.seed-0"
    folder.rename(unfinished(folder))
    assert list(store.finished()) == ["original.seed-0"]
    (unfinished(folder) / "run.json").unlink()  # as if renamed between two checks
    assert {row["method"] for row in store.rows()} == {"original"}


def test_an_empty_list_of_methods_does_not_mean_all(tmp_path):
    for methods in ("", ","):
        with pytest.raises(UsageError, match="at least one method"):
            CliRunner().invoke(
                app.app, ["study", "digits", "--methods", methods, "--out", str(tmp_path / "s")], catch_exceptions=False
            )
    assert not (tmp_path / "s").exists()


def test_a_cell_that_another_process_died_of_is_left_to_the_next_start(tmp_path):
    cells = plan(["original", "ga"], seeds=1, benchmark=tiny())
    store = Store.create(tmp_path / "s", "tiny")
    note = store.locks / "cell.ga.seed-0.begun"
    note.write_text(f"{time.time() + 3600}\n")  # begun "after" this start, and nobody holds the lock
    run_study(tiny(), cells, tmp_path / "s", device="cpu")
    assert (store.is_done(cells[0]), store.is_done(cells[1])) == (True, False)
    note.write_text("5\n")  # long ago
    run_study(tiny(), cells, tmp_path / "s", device="cpu")
    assert store.is_done(cells[1])


def test_foreign_folders_are_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="not empty and holds no study"):
        Store.create(tmp_path, "digits")
    with pytest.raises(UsageError, match="holds no study"):
        Store.open(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
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


def test_originals_of_another_study_are_taken_and_on_record(tmp_path, finished):
    other = dataclasses.replace(tiny(forget="last"), only_split=("forget",))
    cells = plan(["original", "ga"], seeds=3, benchmark=other)
    store = run_study(other, cells, tmp_path / "s", device="cpu", originals=finished)
    for seed in (0, 1):
        name = f"models/original.seed-{seed}.safetensors"
        assert (store.folder / name).read_bytes() == (finished / name).read_bytes()
        assert f"trained.seed-{seed}" not in store.times()
    assert "trained.seed-2" in store.times(), "the third is not there, and trained"
    taken = json.loads((store.folder / "provenance.json").read_text())["runs"][0]["originals"]
    assert taken["study"] == "tiny forget=first"
    assert set(taken["hashes"]) == {"0", "1"}
    assert taken["provenance"][0]["versions"]


def test_originals_that_were_trained_otherwise_are_refused(tmp_path, finished):
    with pytest.raises(UsageError, match="trained differently"):
        run_study(tiny(forget="last"), plan(["ga"], seeds=1), tmp_path / "s", device="cpu", originals=finished)
    assert not list((tmp_path / "s").rglob("*.safetensors"))
    store = Store.create(tmp_path / "empty", "tiny", options={"forget": "first"})
    with pytest.raises(UsageError, match="has no original"):
        run_study(tiny(forget="first"), plan(["ga"], seeds=1), tmp_path / "t", device="cpu", originals=store.folder)


def test_the_command_shows_profiles_apart_and_only_its_own_failures(tmp_path):
    def study(*words):
        return CliRunner().invoke(app.app, ["study", "digits", "--small", "--seeds", "1", "--out", str(out), *words])

    out = tmp_path / "s"
    failed = study("--methods", "ga", "--grid", "learning_rate=1e30")
    assert failed.exit_code == 1
    assert "1 of 1 cells failed" in str(failed.exception)
    done = study("--methods", "ga,delete", "--profiles", "official,released")
    assert done.exit_code == 0, done.output
    assert "failed" not in done.output
    for row in ("ga official", "ga released", "delete"):
        assert row in done.stdout
    assert "delete official" not in done.stdout


def test_one_command_makes_what_the_results_show_of_a_benchmark(tmp_path):
    words = [sys.executable, str(ROOT / "tools" / "complete.py"), "digits", "--out", str(tmp_path)]
    words += ["--methods", "original,retrain,ga,ssd", "--seeds", "1", "--trials", "2", "--device", "cpu"]
    assert subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0
    made = table(tmp_path / "study")
    found = made[(made.metric == "tow") & ~made.method.isin(["original", "retrain"])]
    rows = {(row.method, row.profile, row.seed) for row in found.itertuples()}
    assert rows == {(method, profile, 0) for method in ("ga", "ssd") for profile in ("official", "tuned")}
    assert set(json.loads((tmp_path / "tuning" / "best.json").read_text())["methods"]) == {"ga", "ssd"}


def with_values(**values):
    """The tiny benchmark with other values for gradient ascent."""
    return dataclasses.replace(tiny(), settings={**tiny().settings, "ga": {"official": values}})


def test_seeds_with_different_settings_do_not_make_a_row(tmp_path):
    first, second = (with_values(epochs=epochs) for epochs in (2, 3))
    store = run_study(first, plan(["ga"], seeds=2, benchmark=first), tmp_path / "s", device="cpu")
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*.json")}
    for seeds in (1, 3):
        message = r"cells/ga.seed-0 was run with epochs 2, but now epochs is 3\. .*another --out, or remove"
        with pytest.raises(UsageError, match=message):
            run_study(second, plan(["ga"], seeds=seeds, benchmark=second), store.folder, device="cpu")
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.rglob("*.json")}
    shutil.rmtree(store.cells / "ga.seed-0")
    with pytest.raises(UsageError, match=r"ga.seed-1 was run with epochs 2"):  # not requested, but in the same row
        run_study(second, plan(["ga"], seeds=1, benchmark=second), store.folder, device="cpu")
    run_study(second, plan(["ft"], seeds=1, benchmark=second), store.folder, device="cpu")
    other = plan(["ga"], seeds=1, grid={"epochs": ["3"]}, benchmark=first)
    run_study(first, other, store.folder, device="cpu")


def test_a_cell_of_before_a_method_had_a_setting_stays_valid(tmp_path):
    cells = plan(["ga"], seeds=1, benchmark=tiny())
    store = run_study(tiny(), cells, tmp_path / "s", device="cpu")
    folder = store.cells / "ga.seed-0"
    config = configuration(folder)
    del config["settings"]["normalisation"]
    config["settings"]["gone"] = 1
    write_configuration(folder, config)
    run_study(tiny(), cells, store.folder, device="cpu")


@pytest.mark.parametrize("other", [{"watch": True}, {"precision": "bfloat16"}])
def test_a_cell_that_was_begun_otherwise_begins_again(tmp_path, monkeypatch, other):
    from unweave.methods.two_stage import Stage2

    watch, how = other.get("watch", False), {"device": "cpu", **{k: v for k, v in other.items() if k != "watch"}}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Stage2, "step", interrupt)
        run_study(tiny(), plan(["two-stage"], seeds=1, benchmark=tiny()), tmp_path / "s", device="cpu")
    assert (tmp_path / "s" / "cells" / "two-stage.seed-0.unfinished").exists()
    cells = plan(["two-stage"], seeds=1, benchmark=tiny(), watch=watch)
    store = run_study(tiny(), cells, tmp_path / "s", **how)
    assert (store.failures(), store.is_done(cells[0])) == ([], True)
    assert [path.name for path in store.cells.iterdir()] == ["two-stage.seed-0"]
    assert configuration(store.cells / "two-stage.seed-0")["precision"] == how.get("precision", "float32")


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_unfinished_cell_that_another_process_runs_is_skipped(tmp_path):
    cells = plan(["ga"], seeds=1, benchmark=tiny())
    store = Store.create(tmp_path / "s", "tiny")
    work = store.cells / "ga.seed-0.unfinished"
    work.mkdir()
    lock = Lock(work / "lock")
    run_study(tiny(), cells, store.folder, device="cpu")
    assert "Another process is working" in store.failures()[0]["error"]
    assert work.exists()
    lock.release()
    run_study(tiny(), cells, store.folder, device="cpu")
    assert (store.failures(), store.is_done(cells[0])) == ([], True)


def test_a_cell_that_is_done_has_not_failed(tmp_path):
    cells = plan(["ga", "original"], seeds=1, benchmark=tiny())
    store = run_study(tiny(), cells, tmp_path / "s", device="cpu")
    store.note_failure(cells[0], RunError("an earlier try"))  # its process died before it removed the record
    assert store.failures() == store.failures(cells) == []
    watched = plan(["ga"], seeds=1, benchmark=tiny(), watch=True)
    assert [failure["error"] for failure in store.failures(watched)] == ["an earlier try"]
    shutil.rmtree(store.cells / "ga.seed-0")
    assert len(store.failures()) == len(store.failures(cells)) == 1


@pytest.mark.parametrize("moves", range(5))
def test_a_cell_that_is_made_again_is_whole_at_every_moment(tmp_path, monkeypatch, moves):
    both = plan(["retrain", "ga"], seeds=1, benchmark=tiny())
    store = run_study(tiny(), both, tmp_path / "s", device="cpu")
    compared = (store.cells / "ga.seed-0" / "against-retrain.json").stat().st_mtime_ns
    watched = plan(["ga"], seeds=1, benchmark=tiny(), watch=True)
    put, real, left = Store.put_in_place, Path.replace, [moves]

    def replace(path, target):
        assert set(store.finished()) == {"ga.seed-0", "retrain.seed-0"}
        assert store.scores_of("ga.seed-0")
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(path, target)

    def dying(self, cell):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            return put(self, cell)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_in_place", dying)
        try:
            run_study(tiny(), watched, store.folder, device="cpu")
        except KeyboardInterrupt:
            assert not store.is_done(watched[0])
    monkeypatch.setattr("unweave.lab.study.study.unlearn", None)  # nothing runs a third time
    run_study(tiny(), watched, store.folder, device="cpu")
    assert store.is_done(watched[0])
    assert list((store.folder / "again").iterdir()) == []
    assert "forget_accuracy" in (store.cells / "ga.seed-0" / "history.jsonl").read_text()
    assert (store.cells / "ga.seed-0" / "against-retrain.json").stat().st_mtime_ns == compared, "it is kept"


def test_a_time_that_was_not_written_to_its_end_is_skipped(tmp_path):
    store = Store.create(tmp_path / "s", "tiny")
    store.note_time("ga.seed-0", 1.5)
    with (store.folder / "times.jsonl").open("a") as file:
        file.write('{"name": "ft.se')
    assert store.times() == {"ga.seed-0": 1.5}


def test_a_value_in_two_spellings_is_one_cell():
    grid = {"alpha": ["0.25", " .25", "0.250", "1", "1.0"], "constrain_adjacent": ["yes", "true", "1"]}
    cells = plan(["two-stage"], seeds=1, grid=grid, benchmark=tiny())
    assert [cell.variant for cell in cells] == [
        f"alpha={alpha} constrain_adjacent=true"
        for alpha in ("0.25", "1")  # the names of earlier versions
    ]
    kinds = ["remote-to-adjacent:0.2", "remote-to-adjacent:0.20", "remote-to-adjacent:.2"]
    cells = plan(["two-stage"], seeds=1, adjacency=kinds, benchmark=tiny())
    assert [cell.variant for cell in cells] == ["adjacency=remote-to-adjacent:0.2"]


def test_a_grid_that_is_given_twice_has_the_values_of_both(tmp_path):
    words = ["study", "digits", "--small", "--methods", "ga", "--seeds", "1", "--time-limit", "0", "--json"]
    words += ["--grid", "epochs=1, 2", "--grid", "epochs=7", "--out", str(tmp_path / "s")]
    assert json.loads(CliRunner().invoke(app.app, words).stdout)["cells"] == 3


def test_the_first_profile_named_or_not_is_one_cell(tmp_path):
    plain, named = (plan(["ga"], seeds=1, profiles=names, benchmark=tiny()) for names in ((), ("official",)))
    assert plain == named
    store = run_study(tiny(), plain, tmp_path / "s", device="cpu")
    (store.cells / "ga.seed-0").rename(store.cells / "ga.official.seed-0")  # the name of earlier versions
    before = (store.cells / "ga.official.seed-0" / "scores.json").stat().st_mtime_ns
    run_study(tiny(), named, store.folder, device="cpu")
    assert list(store.finished()) == ["ga.seed-0"]
    assert (store.cells / "ga.seed-0" / "scores.json").stat().st_mtime_ns == before


def test_names_too_long_for_a_file_system_are_shortened_and_stay_apart(tmp_path):
    def cell(count, seed=0, last="0"):
        settings = (*((f"setting_{number}", "0.125") for number in range(count)), ("last", last))
        return Cell(method="two-stage", seed=seed, settings=settings)

    assert cell(10).name == f"two-stage.{','.join(f'setting_{number}=0.125' for number in range(10))},last=0.seed-0"
    store = Store.create(tmp_path / "s", "tiny")
    for seed in (0, 10**6):
        store.note_failure(cell(40, seed), RunError("long"))
        assert cell(40, seed).name.endswith(f".seed-{seed}")
    assert len({cell(40).name, cell(41).name, cell(40, last="1").name}) == 3


def test_an_original_of_ones_own_is_not_on_record_as_anothers(tmp_path):
    cells = plan(["original"], seeds=2, benchmark=tiny())
    other = run_study(tiny(), cells, tmp_path / "other", device="cpu", precision="bfloat16")
    mine = run_study(tiny(), cells[:1], tmp_path / "mine", device="cpu")
    kept = (mine.models / "original.seed-0.safetensors").read_bytes()
    run_study(tiny(), cells, mine.folder, device="cpu", originals=other.folder)
    assert (mine.models / "original.seed-0.safetensors").read_bytes() == kept
    assert set(mine.provenance()[-1]["originals"]["hashes"]) == {"1"}
    more = plan(["ga"], seeds=1, benchmark=tiny())
    run_study(tiny(), more, mine.folder, device="cpu", originals=other.folder)
    assert "originals" not in mine.provenance()[-1]


def test_an_original_that_another_process_copies_or_trains_is_not_written_twice(tmp_path, finished, monkeypatch):
    benchmark, store = tiny(forget="first"), Store.create(tmp_path / "s", "tiny", options={"forget": "first"})
    with Lock.claim(store.locks / "model.original.seed-0.lock"):  # another process trains it
        taken = take_originals(benchmark, store, finished, [0, 1])
    assert set(taken["hashes"]) == {"1"}
    assert [path.name for path in store.models.iterdir()] == ["original.seed-1.safetensors"]
    at_work = []
    monkeypatch.setattr("unweave.lab.study.originals.write_whole", lambda path, data: at_work.append(is_free(store)))
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"" if path.suffix == ".safetensors" else read(path))
    (store.models / "original.seed-1.safetensors").unlink()
    take_originals(benchmark, store, finished, [0, 1])
    assert at_work == [False, False]


def is_free(store):
    with Lock.claim(store.locks / "originals.lock") as claim:
        return claim is not None


def test_what_a_time_limit_left_to_compare_is_said(tmp_path, monkeypatch):
    words = ["study", "digits", "--small", "--methods", "original,retrain,ga", "--seeds", "1", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr("unweave.lab.study.comparisons.Comparisons.compare", lambda *_: None)  # the time was up
        left = CliRunner().invoke(app.app, words)
    assert left.exit_code == 0
    said = " ".join(left.stderr.split())
    assert "3 of 3 cells are done, 2 of them not compared with the retrained models yet. Run the same command" in said
    again = CliRunner().invoke(app.app, words)
    assert (again.exit_code, "Run the same command" in again.stderr) == (0, False)


def test_weights_stay_while_a_cell_is_not_settled_or_not_compared(tmp_path):
    cells = plan(["original", "retrain", "ga"], seeds=1, benchmark=tiny())
    store = Store.create(tmp_path / "s", "tiny")
    note = store.locks / "cell.ga.seed-0.begun"
    note.write_text(f"{time.time() + 3600}\n")  # a process died of it: the next start tries again
    run_study(tiny(), cells, store.folder, device="cpu", keep="none")
    kept = [store.models / "original.seed-0.safetensors", store.weights("retrain.seed-0")]
    assert all(path.exists() for path in kept)
    note.write_text("")
    with Lock.claim(store.locks / "compare.ga.seed-0.lock"):  # another process is comparing it
        run_study(tiny(), cells, store.folder, device="cpu", keep="none")
    assert store.is_done(cells[2])
    assert all(path.exists() for path in [*kept, store.weights("ga.seed-0")])
    run_study(tiny(), cells, store.folder, device="cpu", keep="none")
    assert not list(store.folder.rglob("*.safetensors"))


def test_tuned_settings_that_nothing_would_take_are_refused(tmp_path):
    file = tmp_path / "best.json"
    about = {"benchmark": "digits", "options": {}, "goal": "retrain", "trials": 1, "methods": {}}
    file.write_text(json.dumps({"format": "unweave-tuned", "schema": 1, **about, "provenance": {"runs": []}}))
    words = ["study", "digits", "--methods", "ga", "--tuned", str(file), "--out", str(tmp_path / "s")]
    for profiles in ([], ["--profiles", "tuned"]):
        refused = CliRunner().invoke(app.app, [*words, *profiles])
        assert "of the profile tuned-retrain, but the profiles asked for are" in str(refused.exception)
    assert not (tmp_path / "s").exists()


def test_a_grid_of_methods_leaves_what_they_are_measured_by_alone(tmp_path):
    cells = plan(["original", "retrain", "ft"], seeds=2, grid={"epochs": ["1", "2"]}, benchmark=tiny())
    assert {cell.variant for cell in cells if cell.method == "retrain"} == {""}
    own = plan(["retrain"], seeds=2, grid={"epochs": ["1"]}, benchmark=tiny())  # requested by itself
    store = run_study(tiny(), [*cells, *own], tmp_path / "s", device="cpu")
    found = {tuple(store.compared_with(name)) for name in store.finished("ft")}
    assert found == {("retrain.seed-0", "retrain.seed-1")}
    assert store.compared_with("retrain.seed-0") == ["retrain.seed-1"]
    shutil.rmtree(store.cells / "retrain.seed-1")
    assert store.references_of("retrain.seed-0") == []
    assert store.comparable("ft.epochs=1.seed-0") == ["retrain.seed-0"]  # removed models no longer count


def test_what_can_still_be_compared_is_and_weights_go_all_the_same(tmp_path):
    """With no models kept, cells that are added later are compared with what is left."""

    def go_on(methods, seeds):
        cells = plan(methods, seeds=seeds, benchmark=tiny())
        return run_study(tiny(), cells, tmp_path / "s", device="cpu", keep="none")

    go_on(["original", "retrain", "ft"], 1)
    store = go_on(["original", "retrain", "ft", "ga"], 2)
    assert store.compared_with("ft.seed-1") == ["retrain.seed-1"]
    assert store.compared_with("ft.seed-0") == ["retrain.seed-0"]
    assert not list((tmp_path / "s").rglob("*.safetensors"))
    assert not store.not_compared(plan(["ft", "ga", "retrain"], seeds=2, benchmark=tiny()))


def test_options_are_known_again(tmp_path):
    for _ in range(2):
        store = Store.create(tmp_path / "s", "mine", options={"sizes": (1, 2)})
    assert store.title == "mine sizes=[1, 2]"
