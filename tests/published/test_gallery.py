"""What is committed of studies fits together: numbers, where they come from, and the pages and tables made of them."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from tests.helpers.places import ROOT
from tests.helpers.tiny import tiny
from unweave.lab.report import compare, grids, read_results
from unweave.lab.report.formats import comma_separated
from unweave.lab.study import PRESETS, plan, run_study
from unweave.lab.study.table import COLUMNS

RESULTS = ROOT / "results" / "digits" / "all"
STUDIES = sorted(path.parent.relative_to(ROOT / "results").as_posix() for path in ROOT.glob("results/**/study.json"))
COMPARED = sorted(f"{path.parent.name}/{path.name}" for path in ROOT.glob("results/*/each*"))
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution holds no results")


def test_the_numbers_say_where_they_come_from():
    frame = pd.read_parquet(RESULTS / "results.parquet")
    assert tuple(frame.columns) == COLUMNS
    assert set(frame.seed) == {0, 1, 2}
    for start in json.loads((RESULTS / "provenance.json").read_text())["runs"]:
        assert start["command"] == "unweave study digits all --seeds 3 --out study"
        assert not start["commit"].endswith("+")  # the tree had no uncommitted changes
    assert set(json.loads((RESULTS / "study.json").read_text())["presets"]) == set(PRESETS)


@pytest.mark.parametrize("name", STUDIES)
def test_every_published_study_says_where_it_comes_from(name):
    for start in json.loads((ROOT / "results" / name / "provenance.json").read_text())["runs"]:
        assert start["command"].startswith("unweave ")
        assert " /" not in start["command"], "it names a folder of one machine"
        assert len(start["commit"]) == 40, "the tree had uncommitted changes"
        assert start["hardware"]["device"]
        assert start["versions"]["torch"]


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("gallery")


def test_every_published_study_has_a_place_in_the_gallery(gallery):
    alone = [name for name in STUDIES if name.count("/") == 1]
    assert gallery.studies() == alone
    assert gallery.comparisons() == COMPARED
    pages = [gallery.page_of(name).name for name in [*alone, *COMPARED]]
    assert len({*pages}) == len(pages)
    text = (gallery.GALLERY / "README.md").read_text()
    assert [page for page in pages if f"`{page}`" not in text] == []
    with pytest.raises(SystemExit, match=r"nowhere/all holds no study\. There are: .*digits/all"):
        gallery.main(["nowhere"])


@pytest.mark.parametrize("name", [name for name in STUDIES if name.count("/") == 1])
def test_the_gallery_shows_these_numbers(name, gallery, tmp_path):
    page = tmp_path / "page"
    said = gallery.build(name, page)
    assert said == json.loads((page / "report.json").read_text())["verdict"]
    frame = pd.read_parquet(ROOT / "results" / name / "results.parquet")
    accuracy = frame[(frame.metric == "accuracy") & (frame.subset != "")]
    means = accuracy.groupby(["method", "profile", "variant", "split", "subset"]).value.mean()
    shown = pd.read_csv(page / "tables" / "accuracy.csv", keep_default_na=False)
    shown = shown[shown.train_forget_accuracy_mean != ""]
    assert {(row.method, row.profile, row.variant) for row in shown.itertuples()} == {key[:3] for key in means.index}
    for row in shown.to_dict("records"):
        for split in ("train", "test"):
            for subset in ("forget", "adjacent", "remote"):
                mean = means[row["method"], row["profile"], row["variant"], split, subset]
                assert float(row[f"{split}_{subset}_accuracy_mean"]) == pytest.approx(mean)
    assert (page / "index.html").stat().st_size < 3e6


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_shows_these_numbers(name, gallery, tmp_path):
    folders = sorted((ROOT / "results" / name).iterdir())
    assert len(folders) == (10 if name.startswith("digits") else 5)
    for start in (json.loads((folder / "provenance.json").read_text())["runs"] for folder in folders):
        assert all(len(run["commit"]) == 40 for run in start)
    gallery.build(name, tmp_path)
    found = compare([read_results(folder) for folder in folders], variants=True)
    for grid in grids(found):
        shown = pd.read_csv(tmp_path / f"{grid.name}.csv")
        pd.testing.assert_frame_equal(shown, pd.read_csv(io.StringIO(comma_separated(grid))), rtol=1e-9)
    erase = pd.read_csv(tmp_path / "compare-erase.csv")
    frame = pd.concat([pd.read_parquet(folder / "results.parquet").assign(study=folder.name) for folder in folders])
    forget = frame[(frame.metric == "accuracy") & (frame.split == "test") & (frame.subset == "forget")]
    means = forget.groupby(["method", "profile", "study"]).value.mean().groupby(["method", "profile"]).mean()
    for row in erase.fillna({"profile": ""}).itertuples():
        assert row.test_forget_mean == pytest.approx(means[row.method, row.profile])
    assert (tmp_path / "compare-planes.png").exists()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("README.md", ["--kinds"]),
        ("docs/results.md", ["--overview"]),
        ("docs/results/digits.md", ["digits"]),
        ("docs/results/digits.md", ["digits/tuned"]),
        ("docs/results/cifar100-resnet18.md", ["cifar100-resnet18"]),
        ("docs/results/cifar100-resnet18.md", ["cifar100-resnet18/tuned"]),
        ("docs/results/cifar100-resnet18-studies.md", ["cifar100-resnet18", "--variants"]),
        ("docs/results/cifar100-resnet18-studies.md", ["cifar100-resnet18", "--membership"]),
        ("docs/results/cifar100-resnet18-studies.md", ["cifar100-resnet18-bee", "--variants"]),
        ("docs/results/clinc150.md", ["clinc150"]),
        ("docs/results/fashion-mnist.md", ["fashion-mnist"]),
        ("docs/results/tinyimagenet-vit.md", ["tinyimagenet-vit"]),
        ("docs/results/celeba-vit.md", ["celeba-vit"]),
        ("docs/results/cifar100-vit.md", ["cifar100-vit"]),
        ("docs/results/cifar100-vit.md", ["cifar100-vit/tuned"]),
        ("docs/results/cifar100-resnet18-studies.md", ["--times"]),
        ("docs/results/toxigen.md", ["toxigen-roberta"]),
        ("docs/results/toxigen.md", ["toxigen-roberta/tuned"]),
        ("docs/tuning.md", ["digits", "--tuned"]),
    ],
)
def test_the_pages_hold_the_tables(page, words, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    assert importlib.import_module("table").printed(*words) in (ROOT / page).read_text(encoding="utf-8")


def test_a_table_is_printed_by_the_command_that_its_page_names():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "table.py"), "--kinds"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.stdout.strip() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_rows_of_a_method_are_added_to_what_is_published(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import publish

    three, four = (ROOT / "results" / "digits" / "each" / kind for kind in ("3", "4"))
    new, target = shutil.copytree(three, tmp_path / "new"), shutil.copytree(three, tmp_path / "published")
    whole = pd.read_parquet(three / "results.parquet")
    whole[whole.seed > 0].to_parquet(new / "results.parquet", index=False)  # seed 1 is published already, seed 2 is not
    whole[(whole.method != "pgd") | (whole.seed < 2)].to_parquet(target / "results.parquet", index=False)
    (target / "failed").mkdir()
    for seed in (2, 3):  # seed 2 has finished since
        note = {"method": "pgd", "profile": "tuned", "variant": "", "seed": seed, "error": "It broke."}
        (target / "failed" / f"pgd.seed-{seed}.json").write_text(json.dumps(note))
    publish.add_numbers(new, target, ["pgd"])
    assert [path.name for path in (target / "failed").iterdir()] == ["pgd.seed-3.json"]
    found = pd.read_parquet(target / "results.parquet")
    keys = ["method", "profile", "variant", "seed", "split", "subset", "metric"]
    pd.testing.assert_frame_equal(
        found.sort_values(keys, ignore_index=True), whole.sort_values(keys, ignore_index=True), check_dtype=False
    )
    before, after = (json.loads((folder / "provenance.json").read_text())["runs"] for folder in (three, target))
    assert after == [*before, *before]
    for other, method in ((four, "pgd"), (new, "nobody")):
        with pytest.raises(SystemExit, match=r"is of|no rows of nobody"):
            publish.add_numbers(other, target, [method])


def test_what_tuning_chose_comes_with_the_package_without_the_folders_of_one_machine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import publish

    tuning, results, tuned = (tmp_path / name for name in ("tuning", "results", "package"))
    for folder in (tuning, tuned):
        folder.mkdir()
    monkeypatch.setattr(publish, "RESULTS", results)
    monkeypatch.setattr(publish, "TUNED", tuned)
    with pytest.raises(SystemExit, match=r"has no best\.json"):
        publish.publish_tuning(tuning, "digits")
    chosen = json.loads((ROOT / "src/unweave/lab/benchmarks/tuned/digits-retrain.json").read_text())
    chosen["provenance"]["runs"][0]["command"] = "unweave tune digits --data /home/me/data --out /home/me/tuning"
    (tuning / "best.json").write_text(json.dumps(chosen))
    (tuning / "trials.csv").write_text("method\n")
    with pytest.raises(SystemExit, match="is of digits, not of clinc150"):
        publish.publish_tuning(tuning, "clinc150")
    assert not results.exists()
    publish.publish_tuning(tuning, "digits/tuned-retrain")
    found = json.loads((tuned / "digits-retrain.json").read_text())
    assert found["provenance"]["runs"][0]["command"] == "unweave tune digits --data DATA --out tuning"
    assert found["methods"] == chosen["methods"]
    study = ROOT / "results" / "digits" / "each" / "3"
    publish.copy_numbers(study, results / "digits" / "tuned-retrain")
    assert {path.name for path in (results / "digits" / "tuned-retrain").iterdir()} == {"trials.csv", *publish.NUMBERS}


def test_published_numbers_say_what_data_and_model_they_are_of(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import publish

    study = tmp_path / "study"
    run_study(tiny(), plan(["original", "ga"], seeds=1, benchmark=tiny()), study, device="cpu")
    publish.copy_numbers(study, tmp_path / "published")
    before, after = read_results(study), read_results(tmp_path / "published")
    assert before.notes
    assert after.notes == before.notes
    assert after.versions == before.versions
    assert {*after.versions} == {"unweave", "torch"}
    assert not after.histories  # published numbers have no cells
