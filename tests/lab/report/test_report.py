from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.helpers.records import Run
from tests.helpers.reports import CELLS, ERROR, HOSTILE, METHODS, SUBSETS, VARIANT, make_study, write_cell
from tests.helpers.tiny import tiny
from unweave import UsageError
from unweave.lab.report import Group, Results, accuracy_table, read_results, write_record_page, write_report
from unweave.lab.report.grids import study_grids
from unweave.lab.report.measures import Place
from unweave.lab.report.paper import paper_grid
from unweave.lab.report.results import Value
from unweave.lab.report.sections import row_labels
from unweave.lab.report.stage_figures import stage_histograms
from unweave.lab.study import Cell, Store, describe_preset, each_once, find_presets, preset_cells, run_study
from unweave.record import signing

LATEX = shutil.which("pdflatex") or shutil.which("lualatex") or shutil.which("xelatex")
TABLES = ("accuracy", "loss", "membership", "other", "cost", "failed")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = make_study(tmp_path_factory.mktemp("report") / "study", presets=("comparison", "cost", "dynamics"))
    write_report(folder, against_paper=True)
    return folder


@pytest.fixture(scope="module")
def frame(study):
    return pd.read_parquet(study / "results.parquet")


def pandas_spread(frame, method, split, subset, metric):
    chosen = frame[
        (frame.method == method) & (frame.split == split) & (frame.subset == subset) & (frame.metric == metric)
    ]
    return chosen.value.mean(), chosen.value.std()


def test_every_number_of_the_csv_tables_is_the_stores(study, frame):
    seen = 0
    for name in ("accuracy", "loss", "membership", "other", "cost"):
        table = pd.read_csv(study / "report" / "tables" / f"{name}.csv")
        assert list(table.method) == [
            "original",
            "retrain",
            *[m for m in table.method if m not in ("original", "retrain")],
        ]
        assert set(table.method) == {*frame.method, "salun"}
        for column in [column for column in table if column.endswith("_mean")]:
            stem = column.removesuffix("_mean")
            split, subset, metric = re.fullmatch(r"(?:(train|test)_(forget|adjacent|remote)_)?(\w+)", stem).groups("")
            for row in table.itertuples():
                mean, std = pandas_spread(frame, row.method, split, subset, metric)
                found = (getattr(row, column), getattr(row, f"{stem}_std"))
                assert found == pytest.approx((mean, std), rel=1e-12, abs=1e-15, nan_ok=True), (
                    name,
                    row.method,
                    column,
                )
                seen += 1
    assert seen > 80


def test_markdown_round_trips_through_pandas(study, frame):
    text = (study / "report" / "tables" / "accuracy.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    table = pd.DataFrame(rows[2:], columns=rows[0])
    assert len(table) == len(METHODS) + 1
    assert rows[0][2:] == [f"{split} {subset} {'↓' if subset == 'forget' else '↑'}" for split, subset in CELLS]
    names = [html.unescape(name) for name in table["method"].str.replace(r"\\(.)", r"\1", regex=True)]
    assert f"{HOSTILE} {VARIANT}" in names
    for name, row in zip(names, table.to_dict("records"), strict=True):
        for (split, subset), heading in zip(CELLS, rows[0][2:], strict=True):
            mean, std = pandas_spread(frame, name.split(" ")[0], split, subset, "accuracy")
            expected = "failed" if name == "salun" else f"{100 * mean:.1f} ± {100 * std:.1f}"
            assert re.sub(r"\*\*|</?u>", "", row[heading]) == expected
    assert "<script" not in text
    assert "loss became nan in step 7" in text


def test_best_and_nearest_are_marked_among_the_methods(study, frame):
    grid = next(grid for grid in study_grids(read_results(study)) if grid.name == "accuracy")
    for number, (split, subset) in enumerate(CELLS, start=1):
        means = {method: pandas_spread(frame, method, split, subset, "accuracy")[0] for method in set(frame.method)}
        racing = {name: value for name, value in means.items() if name not in ("original", "retrain")}
        best = (min if subset == "forget" else max)(racing.values())
        least = min(abs(value - means["retrain"]) for value in racing.values())
        for row in grid.rows:
            name, marks = row.name.split(" ")[0], row.entries[number].marks
            value = racing.get(name, math.nan)
            assert ("best" in marks) == (f"{100 * value:.1f}" == f"{100 * best:.1f}")
            assert ("nearest" in marks) == (f"{100 * abs(value - means['retrain']):.1f}" == f"{100 * least:.1f}")


def test_latex_is_well_formed(study):
    files = sorted(path.stem for path in study.glob("report/tables/*.tex"))
    assert files == sorted([*TABLES, "study-comparison-accuracy", "study-cost-cost"])
    for name in files:
        check_latex((study / "report" / "tables" / f"{name}.tex").read_text(), name)


def check_latex(text, name):
    """Check closed environments, balanced braces and dollars, the number of cells, and escaped letters."""
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert opened == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    depth = np.cumsum([{"{": 1, "}": -1}.get(letter, 0) for letter in bare])
    assert depth.min() >= 0
    assert depth[-1] == 0
    assert bare.count("$") % 2 == 0
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text).group(1))
    for line in text.splitlines():
        if not line.endswith(r"\\"):
            continue
        cells = re.sub(r"\\[\\{}&%$#_]", "", line).split("&")
        spans = [int(found.group(1)) if (found := re.search(r"\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells]
        assert sum(spans) == columns, line
    rows = text.split(r"\midrule")[1]
    assert not re.search(r"(?<!\\)[#_%]|<|>|\|", rows)
    assert r"\textless{}script" in rows or name == "failed"


@pytest.mark.skipif(not LATEX, reason="needs a TeX (Debian: apt-get install texlive-latex-recommended)")
def test_latex_compiles(study, tmp_path):
    tables = "".join(rf"\input{{{path}}}" for path in sorted(study.glob("report/tables/*.tex")))
    text = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{tables}\end{{document}}"
    (tmp_path / "all.tex").write_text(text)
    words = [LATEX, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").exists()


def test_every_named_study_has_a_section(study):
    text = (study / "report" / "index.html").read_text()
    assert re.findall(r'data-study="([^"]*)"', text) == ["comparison", "cost", "dynamics"]
    assert html.escape(f"What of {HOSTILE}?") in text
    assert 'id="dynamics-chart"' in text
    assert "data: made up" in text
    whole, part = (
        pd.read_csv(study / "report" / "tables" / f"{name}.csv").set_index("method")
        for name in ("accuracy", "study-comparison-accuracy")
    )
    pd.testing.assert_frame_equal(whole.loc[part.index], part)


def test_failed_cells_do_not_vanish(study):
    for suffix in ("md", "tex", "csv"):
        text = (study / "report" / "tables" / f"failed.{suffix}").read_text()
        assert text.count("salun") == 2
        assert "loss became nan in step 7" in text
    accuracy = pd.read_csv(study / "report" / "tables" / "accuracy.csv").set_index("method")
    assert accuracy.loc["salun", "failed"] == 2
    assert accuracy.loc["salun", "error"] == f"{ERROR}; {ERROR}"
    assert (accuracy.loc["ft", "seeds"], accuracy.loc["ft", "failed"]) == (2, 1)
    about = json.loads((study / "report" / "report.json").read_text())
    assert len(about["failed"]) == 3
    assert "salun seed 0" in about["points"]["Failed"]


def foreign(folder):
    (folder / "notes.txt").write_text("mine")


def newer(folder):
    Store.create(folder, "digits")
    (folder / "study.json").write_text(json.dumps({"format": "unweave-study", "schema": 99, "benchmark": "digits"}))


def broken_table(folder):
    make_study(folder, seeds=1)
    (folder / "results.parquet").write_text("nonsense")


def other_columns(folder):
    make_study(folder, seeds=1)
    pd.DataFrame({"x": [1]}).to_parquet(folder / "results.parquet")


def broken_history(folder):
    make_study(folder, seeds=1)
    next(folder.glob("cells/*/history.jsonl")).write_text("{")


def own_report(folder):
    make_study(folder, seeds=1)
    (folder / "report").mkdir()
    (folder / "report" / "mine.txt").write_text("mine")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "holds no study"),
        (foreign, "holds no study"),
        (newer, "schema 99"),
        (lambda folder: Store.create(folder, "digits"), "without a finished cell"),
        (broken_table, "cannot be read as a table"),
        (other_columns, "lacks the columns variant"),
        (broken_history, "cannot be read"),
        (own_report, "is not a report"),
        (lambda folder: folder.rmdir(), "is not a folder"),
    ],
)
def test_a_wrong_folder_raises_one_sentence_and_is_not_changed(tmp_path, prepare, message):
    folder = tmp_path / "study"
    folder.mkdir()
    prepare(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match=message):
        write_report(folder)
    assert sorted(folder.rglob("*")) == before


def test_a_report_is_written_whole_or_not_at_all(study, monkeypatch):
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("unweave.lab.report.study_figures.draw_figures", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(study)
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before


def test_the_same_study_gives_the_same_files(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, ignore=shutil.ignore_patterns("report"))
    report = write_report(copy, against_paper=True)
    for path in [path for path in report.folder.rglob("*") if path.is_file()]:
        assert path.read_bytes() == (study / "report" / path.relative_to(report.folder)).read_bytes(), path
    names = {path.name for path in report.folder.glob("figures/*")}
    figures = ("trade-off", "membership", "loss-distributions", "learning-dynamics", "cost")
    figures += ("forget-losses-by-stage", "last-stage")
    assert names == {f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")}


def test_a_cell_finished_after_the_table_is_shown_too(tmp_path):
    folder = make_study(tmp_path / "study", seeds=1, failures=False)
    write_cell(Store(folder), "late", "", 0, (0.5, 0.9, 0.9), np.random.default_rng(1))
    assert "late" in {group.method for group in read_results(folder).groups}


def test_a_cell_is_newer_than_the_table(tmp_path):
    """A study that was stopped before it rewrote its table shows its cells."""
    folder = make_study(tmp_path / "study", seeds=1, failures=False)
    table = pd.read_parquet(folder / "results.parquet")
    gone = {"method": "gone", "profile": "official", "variant": "", "seed": 0}
    other = table[table.method == "ga"].assign(**gone)
    pd.concat([table.assign(value=-1.0), other]).to_parquet(folder / "results.parquet")
    found = read_results(folder)
    assert all(value.value >= 0 for of in found.values.values() for at in of.values() for value in at.values())
    assert Group("gone", "official", "") not in found.groups  # somebody removed it
    shutil.rmtree(folder / "cells")
    assert Group("gone", "official", "") in read_results(folder).groups  # without cells, the table counts


@pytest.mark.parametrize("benchmark", ["cifar100-resnet18", "somebody-elses"])
def test_published_numbers_keep_their_settings(tmp_path, benchmark):
    """Without cells, the settings are those of the variant, or the defaults of a known benchmark."""
    plain, five = Group("two-stage", "released", ""), Group("two-stage", "released", "penalty=5")
    results = Results(tmp_path, {"benchmark": benchmark})
    results.values = {group: {Place("test", "forget", "accuracy"): {0: Value(0.5)}} for group in (plain, five)}
    labels = row_labels(results, {"rows": [plain, five], "about": ["penalty"]})
    known = "penalty=10" if benchmark == "cifar100-resnet18" else "two-stage"
    assert labels == {plain: known, five: "penalty=5"}


def test_costs_are_not_compared_with_retraining(study):
    """A method need not be as slow as retraining, so no cost is marked as nearest to it."""
    grid = next(grid for grid in study_grids(read_results(study)) if grid.name == "cost")
    marks = [mark for row in grid.rows for entry in row.entries for mark in entry.marks]
    assert set(marks) == {"best"}


def test_the_terminal_table_breaks_no_word_and_bears_an_empty_subset():
    def scores(value):
        return {part: {subset: {"accuracy": value} for subset in SUBSETS} for part in ("train", "test")}

    name = "two-stage stage2_epochs=0 constrain_adjacent=true"
    console = Console(width=80, file=io.StringIO())
    console.print(accuracy_table({name: [scores(0.995), scores(1.0)], "ft": [scores(0.1), scores(1.0)]}))
    lines = [line[:14].rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[3:9] == ["two-stage", "stage2_epochs=", "0", "constrain_", "adjacent=true", "ft"]
    assert {*accuracy_table({"one": [scores(None)]}).columns[1].cells} == {"–"}


def test_the_page_of_a_record_calls_its_key_as_the_command_does(tmp_path):
    record = Run(tmp_path).record
    write_record_page(tmp_path / "page.html", [record])
    name = signing.name_of(record["signature"]["public_key"])
    assert f"by the key {name}, not checked" in (tmp_path / "page.html").read_text()
    record["signature"]["public_key"] = "no key"
    write_record_page(tmp_path / "page.html", [record])
    assert "by an unreadable key, not checked" in (tmp_path / "page.html").read_text()


def test_only_failures_still_make_a_report(tmp_path):
    store = Store.create(tmp_path / "study", "digits")
    store.note_failure(Cell(method="ft", seed=0), RuntimeError(ERROR))
    report = write_report(store.folder)
    assert report.failures == (f"Failed: ft seed 0: {ERROR}",)
    assert "&lt;/script&gt;&lt;img" in report.page.read_text()


def test_a_benchmark_that_the_paper_lacks_says_so(study):
    assert paper_grid(read_results(study)) is None
    assert "The paper has no benchmark like digits" in (study / "report" / "index.html").read_text()


def test_a_real_study_makes_a_report(tmp_path):
    benchmark = tiny(forget="first")
    presets = find_presets("noise") + find_presets("dynamics")
    cells = {preset.name: preset_cells(preset, benchmark, seeds=1) for preset in presets}
    described = {preset.name: describe_preset(preset, cells[preset.name]) for preset in presets}
    everything = each_once(cell for found in cells.values() for cell in found)
    store = run_study(benchmark, everything, tmp_path / "study", device="cpu", presets=described)
    report = write_report(store.folder)
    accuracy = csv.DictReader(io.StringIO((report.folder / "tables" / "accuracy.csv").read_text()))
    frame = pd.read_parquet(store.table)
    for row in accuracy:
        chosen = frame[frame.variant == row["variant"]]
        mean, _ = pandas_spread(chosen, row["method"], "test", "adjacent", "accuracy")
        assert float(row["test_adjacent_accuracy_mean"]) == mean
    assert report.verdict
    for name in ("loss-distributions", "forget-losses-by-stage", "last-stage"):
        assert (report.folder / "figures" / f"{name}.png").exists()
    results = read_results(store.folder)
    (group,) = (group for group in results.groups if group == ("pgd", "released", ""))
    names = [name for name, *_ in stage_histograms(results, group, 0)]
    assert names == ["original", "after stage 1", "at the end"]
    text = report.page.read_text()
    assert "tiny forget=first" in text
    assert "adjacency=classes" in text
