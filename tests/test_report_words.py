from __future__ import annotations

import numpy as np
import pytest

from tests.test_report import make_study, write_cell
from unweave.benchmarks import find_benchmark
from unweave.evaluation import goals
from unweave.methods import find_method
from unweave.report import verdict as verdict_module
from unweave.report.formats import latex, markdown
from unweave.report.grids import study_grids
from unweave.report.measures import Place
from unweave.report.paper import paper_grid
from unweave.report.results import read_results
from unweave.report.sections import sections
from unweave.report.verdict import verdict
from unweave.study import PRESETS, Store, describe_preset, preset_cells
from unweave.study.cells import as_settings


def test_the_verdict_follows_the_numbers(tmp_path):
    methods = {
        ("original", ""): (1.0, 0.99, 0.99),
        ("retrain", ""): (0.2, 0.99, 0.99),
        ("one", ""): (0.02, 0.98, 0.98),
        ("two", ""): (0.0, 0.7, 0.99),
        ("three", ""): (0.21, 0.99, 0.99),
        ("four", ""): (0.0, 0.94, 0.99),
        ("five", ""): (0.9, 0.99, 0.99),
        ("six", ""): (0.04, 0.98, 0.98),
    }
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    points = dict(found.points)
    assert found.headline.startswith("one forgets and keeps")
    assert points["Collapsed"].startswith("two loses")
    assert points["Paid with neighbours"].startswith("four:")
    assert points["Forgot in part"].startswith("three (")
    assert points["Forgot and kept too"].startswith("six (")
    assert points["Hardly forgot"].startswith("five:")
    assert "is three," in points["Against retraining"]
    swapped = dict(zip(methods, [*list(methods.values())[:2], *list(methods.values())[:1:-1]], strict=True))
    again = verdict(read_results(make_study(tmp_path / "b", methods=swapped, failures=False)))
    assert again.headline.startswith("six forgets and keeps")


def test_the_verdict_admits_what_it_cannot_say(tmp_path):
    def said(name, methods):
        return verdict(read_results(make_study(tmp_path / name, methods=methods, seeds=1, failures=False))).text()

    one = {("one", ""): (0.5, 0.7, 0.9)}
    assert "the original model is not part of this study" in said("a", one)
    alone = {("original", ""): (1.0, 0.99, 0.99), **one}
    assert "does not keep the neighbours: it loses" in said("b", alone)
    assert "No method keeps the neighbours: the gentlest, " in said("b2", {**alone, ("other", ""): (0.0, 0.1, 0.9)})
    assert "holds no retrained model" in said("c", one)
    assert "No unlearning method" in said("d", {("original", ""): (1.0, 0.99, 0.99)})
    gentle = {("original", ""): (1.0, 0.99, 0.99), ("one", ""): (0.5, 0.99, 0.99)}
    assert "forgets fully: one comes nearest and still recognises" in said("e", gentle)


def test_who_pays_with_remote_data_does_not_keep(tmp_path):
    """The neighbours alone are not all that is to be kept."""
    methods = {("original", ""): (1.0, 0.9, 0.9), ("greedy", ""): (0.0, 0.95, 0.75), ("gentle", ""): (0.3, 0.9, 0.9)}
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    assert found.headline.startswith("No method forgets and keeps: greedy forgets and loses 15.")
    assert "points of remote accuracy, with 0." in found.headline
    assert "recognised (before: 100.0%); gentle keeps the neighbours and still recognises" in found.headline
    assert found.winner is not None
    assert found.winner.method == "gentle"
    assert dict(found.points)["Collapsed"].startswith("greedy loses")
    del methods["gentle", ""]
    alone = verdict(read_results(make_study(tmp_path / "b", methods=methods, failures=False)))
    assert alone.headline.startswith("greedy does not keep the rest: it loses")
    assert "of remote accuracy" in alone.headline


def test_who_hardly_forgot_has_won_nothing(tmp_path):
    """To keep everything is no merit of a method that does nothing."""
    methods = {("original", ""): (1.0, 0.9, 0.9), ("idle", ""): (0.99, 0.9, 0.9), ("thorough", ""): (0.0, 0.8, 0.9)}
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    assert "thorough forgets and loses 10." in found.headline
    assert "idle keeps the neighbours and still recognises 99." in found.headline
    assert found.winner is None
    assert {"Kept", "Cost"}.isdisjoint(dict(found.points))
    assert dict(found.points)["Hardly forgot"].startswith("idle:")


def test_collapse_means_the_same_here_and_in_the_evaluation():
    assert verdict_module.COLLAPSE == goals.COLLAPSE


def test_the_papers_numbers_stand_beside_ours(tmp_path):
    results = read_results(make_study(tmp_path / "study", benchmark="cifar100-resnet18", seeds=2, failures=False))
    grid = paper_grid(results)
    ours = {(record["method"], record["split"], record["subset"]): record for record in grid.records}
    record = ours["two-stage", "test", "adjacent"]
    assert record["paper_mean"] == pytest.approx(0.7817)
    own = next(group for group in results.groups if group.method == "two-stage")
    assert record["ours_mean"] == results.mean(own, Place("test", "adjacent", "accuracy"))
    assert record["difference"] == pytest.approx(record["ours_mean"] - 0.7817)
    assert ours["scrub", "train", "forget"]["ours_mean"] is None  # printed in the paper, not part of this study
    assert ours["retrain", "train", "forget"]["paper_mean"] == pytest.approx(0.384)  # from another of its tables
    assert any("ResNet-18 pretrained on ImageNet" in note for note in grid.notes)
    assert "beside the paper" in markdown(grid)
    assert latex(grid).count("multicolumn") == 2


@pytest.mark.parametrize(
    ("preset", "paper"),
    [
        ("without-w2", {"two-stage": 0.0, "pgd": 0.1887}),
        ("alpha", {"alpha=0": 0.1967, "alpha=0.5": 0.0073, "alpha=1": 0.0147}),
        ("mu", {"penalty=5": 0.0, "penalty=10": 0.0, "penalty=20": 0.0}),
        (
            "stage-1",
            {
                "stage2_epochs=0 constrain_adjacent=false": 0.0,
                "stage2_epochs=0 constrain_adjacent=true": 0.0713,
                "stage2_epochs=25 constrain_adjacent=false": None,
                "stage2_epochs=25 constrain_adjacent=true": None,
            },
        ),
        (
            "noise",
            {
                "adjacency=classes": 0.0,
                "adjacency=remote-to-adjacent:0.2": 0.0,
                "adjacency=adjacent-to-remote:0.2": 0.0,
            },
        ),
        ("neighbours", {"adjacency=classes": 0.0, "adjacency=neighbours": 0.03}),
        ("retrain", {"two-stage": 0.0, "retrain": 0.384}),
    ],
)
def test_every_study_of_the_paper_has_its_rows_beside_ours(tmp_path, preset, paper):
    benchmark = find_benchmark("digits")
    cells = preset_cells(PRESETS[preset], benchmark, seeds=1)
    store = Store.create(tmp_path / "study", "cifar100-resnet18", options={"size": 32})
    random = np.random.default_rng(0)
    for cell in cells:
        method = find_method(cell.method)
        values = as_settings(cell, benchmark.settings_for(method, None))
        settings = method.configure(values).to_dict()
        write_cell(store, cell.method, cell.variant, 0, (0.5, 0.9, 0.9), random, settings=settings, name=cell.name)
    store.add_presets({preset: describe_preset(PRESETS[preset], cells)})
    results = read_results(store.folder)
    (section,) = sections(results, against_paper=True)
    grid = section.grids[-1]
    forget = {row.name: row.entries[1].text for row in grid.rows if row.name != "original"}
    printed = {name: "–" if value is None else f"{100 * value:.1f}" for name, value in paper.items()}
    assert {name: text.split(" ± ")[0] for name, text in forget.items()} == printed
    assert [row.name for row in section.grids[0].rows] == [
        "original",
        *(["retrain"] if preset == "retrain" else []),
        *(name for name in paper if name != "retrain"),
    ]
    notes = " ".join(grid.notes)
    assert ("row labels exchanged" in notes) == (preset == "stage-1")
    assert ("another forget set: bee" in notes) == (preset == "alpha")
    # Where another forget set is chosen, only the paper's rows on that one stand beside ours.
    results.about["options"] = {"forget": "bee"}
    shown = paper_grid(results)
    assert {record["paper_table"] for record in (shown.records if shown else [])} <= {"alpha"}


def test_variants_do_not_race_against_methods(tmp_path):
    methods = {
        ("original", ""): (1.0, 0.99, 0.99),
        ("two-stage", ""): (0.02, 0.98, 0.98),
        ("two-stage", "alpha=1"): (0.0, 0.99, 0.99),
        ("ga", ""): (0.0, 0.5, 0.9),
    }
    results = read_results(make_study(tmp_path / "study", methods=methods, failures=False))
    assert verdict(results).headline.startswith("two-stage forgets and keeps")
    grid = next(grid for grid in study_grids(results) if grid.name == "accuracy")
    rows = {row.name: row.entries for row in grid.rows}
    assert "best" in rows["ga"][1].marks
    assert rows["two-stage alpha=1"][1].marks == ()


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ""),
        ([{"command": "unweave study digits --out s", "workers": 1}], ""),
        ([{"command": "unweave study digits --workers 4 --out s"}, {"workers": 2}], "Up to 4 cells ran at once"),
        ([{"command": "unweave study digits", "workers": 3}], "Up to 3 cells ran at once"),
    ],
)
def test_times_that_were_taken_side_by_side_are_not_shown_without_saying_so(tmp_path, runs, words):
    methods = {("original", ""): (1.0, 0.99, 0.99), ("one", ""): (0.0, 0.99, 0.99)}
    folder = make_study(tmp_path / "s", methods=methods, failures=False)
    for run in runs:
        Store(folder).write_provenance(run)
    results = read_results(folder)
    cost = next(grid for grid in study_grids(results) if grid.name == "cost")
    shown = [note for note in cost.notes if "at once" in note]
    assert bool(words) == bool(shown) == (words in dict(verdict(results).points)["Cost"] and bool(words))
    assert all(note.startswith(words) for note in shown)
