from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.reports import make_study, write_cell
from unweave.evaluation import Predictions, accuracy_and_losses, goals
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.report import Group, Results, read_results
from unweave.lab.report.formats import comma_separated, latex, markdown
from unweave.lab.report.grids import Column, Entry, Grid, Row, grid, study_grids
from unweave.lab.report.headline import verdict
from unweave.lab.report.marks import marks
from unweave.lab.report.measures import Place
from unweave.lab.report.paper import paper_grid
from unweave.lab.report.results import Value
from unweave.lab.report.sections import sections
from unweave.lab.report.verdict_numbers import COLLAPSE
from unweave.lab.study import PRESETS, Store, describe_preset, preset_cells
from unweave.lab.study.cells import as_settings
from unweave.methods import find_method


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
        ("seven", ""): (0.3, 0.99, 0.94),
    }
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    points = dict(found.points)
    assert found.headline.startswith("one forgets and keeps")
    assert points["Collapsed"].startswith("two loses")
    assert points["Forgot at a price"].startswith("four loses 5.")
    assert points["Forgot at a price"].endswith("adjacent accuracy.")
    assert points["Paid with kept data"].startswith("seven:")
    assert points["Forgot in part"].startswith("three (")
    assert "%) keeps, with" in points["Forgot in part"]  # singular for one method
    assert points["Forgot and kept too"].startswith("six (")
    assert points["Hardly forgot"].startswith("five:")
    assert "is three," in points["Against retraining"]
    swapped = dict(zip(methods, [*list(methods.values())[:2], *list(methods.values())[:1:-1]], strict=True))
    again = verdict(read_results(make_study(tmp_path / "b", methods=swapped, failures=False)))
    assert again.headline.startswith("seven forgets and keeps")


def test_the_verdict_admits_what_it_cannot_say(tmp_path):
    def said(name, methods):
        return verdict(read_results(make_study(tmp_path / name, methods=methods, seeds=1, failures=False))).text()

    one = {("one", ""): (0.5, 0.7, 0.9)}
    assert "the original model is not part of this study" in said("a", one)
    alone = {("original", ""): (1.0, 0.99, 0.99), **one}
    assert "one neither forgets nor keeps: it loses" in said("b", alone)
    harsh = said("b2", {**alone, ("other", ""): (0.4, 0.1, 0.9)})
    assert "No method forgets, and none keeps: the gentlest, one, loses" in harsh
    assert "holds no retrained model" in said("c", one)
    assert "No unlearning method" in said("d", {("original", ""): (1.0, 0.99, 0.99)})
    gentle = {("original", ""): (1.0, 0.99, 0.99), ("one", ""): (0.5, 0.99, 0.99)}
    assert "one keeps but does not forget: it still recognises" in said("e", gentle)
    nobody = said("f", {**gentle, ("other", ""): (0.9, 0.99, 0.99)})
    assert "No method forgets: of those that keep, one comes nearest and still recognises" in nobody


def results_of(methods):
    """Return results with these (forget, adjacent, remote) accuracies by method and seed, equal for train and test."""
    found = Results(folder=Path("study"), about={"benchmark": "b"})
    for name, seeds in methods.items():
        for seed, accuracies in seeds.items():
            for split in ("train", "test"):
                for subset, value in zip(("forget", "adjacent", "remote"), accuracies, strict=True):
                    place = Place(split, subset, "accuracy")
                    of = found.values.setdefault(Group(name, "official", ""), {}).setdefault(place, {})
                    of[seed] = Value(value)
    return found


def test_a_method_is_compared_with_the_original_of_its_own_seeds():
    """The third original is poor: a method that ran with that seed only has lost nothing."""
    originals = {0: (1.0, 0.95, 0.9), 1: (1.0, 0.95, 0.9), 2: (1.0, 0.65, 0.9)}
    found = verdict(results_of({"original": originals, "ga": {2: (0.0, 0.65, 0.9)}}))
    assert found.headline.startswith("ga forgets and keeps")
    assert "train adjacent 65.0% (original 65.0%)" in dict(found.points)["Accuracy on kept data"]


def test_remote_accuracy_counts_as_kept_data_too():
    """A method that loses remote accuracy does not win over one that loses nothing."""
    original, greedy, gentle = (1.0, 0.95, 0.95), (0.0, 0.95, 0.9), (0.01, 0.95, 0.95)
    found = verdict(results_of({"original": {0: original}, "greedy": {0: greedy}, "gentle": {0: gentle}}))
    assert found.headline.startswith("gentle forgets and keeps")
    assert dict(found.points)["Forgot at a price"] == "greedy loses 5.0 points of test remote accuracy."


def test_a_method_that_forgets_at_a_price_forgets():
    """A method that forgets at a small price has not failed. Its largest loss is named."""
    methods = {"original": {0: (1.0, 0.95, 0.95)}, "one": {0: (0.001, 0.92, 0.93)}}
    found = verdict(results_of(methods))
    assert found.headline == (
        "one forgets at a price: it loses 3.0 points of test adjacent accuracy, with 0.1% of the forget samples still "
        "recognised (before: 100.0%)."
    )
    assert found.advice.startswith("Use one if you can bear this loss.")
    assert found.winner is not None
    assert found.named == (found.winner,)


def test_a_mean_that_keeps_may_hide_seeds_that_do_not():
    original, runs = (1.0, 0.95, 0.95), {0: (0.0, 0.92, 0.95), 1: (0.0, 0.95, 0.92), 2: (0.0, 0.95, 0.95)}
    found = verdict(results_of({"original": dict.fromkeys(range(3), original), "one": runs}))
    assert found.headline.startswith("one forgets and keeps")
    assert found.headline.endswith("In 2 of 3 seeds one of them loses more.")
    assert "seeds differ" in found.advice


@pytest.mark.parametrize(("before", "nothing"), [(0.0, True), (0.05, True), (0.06, False)])
def test_what_was_never_recognised_cannot_be_forgotten(before, nothing):
    """The limit is the share up to which the report says that a method forgets."""
    methods = {"original": {0: (before, 0.9, 0.9)}, "one": {0: (0.0, 0.9, 0.9)}, "two": {0: (0.0, 0.5, 0.9)}}
    found = verdict(results_of(methods))
    words = f"There is nothing to forget here: the original does not recognise the forget data ({100 * before:.1f}%)."
    assert (found.headline == words) == nothing
    assert (found.winner is None) == nothing
    assert dict(found.points)["Collapsed"].startswith("two loses")


def test_the_numbers_of_a_trial_are_not_taken_for_results():
    results = results_of({"original": {0: (1.0, 0.9, 0.9)}, "one": {0: (0.0, 0.9, 0.9)}})
    results.about["options"] = {"small": True}
    found = verdict(results)
    assert "mean nothing" in found.headline
    assert (found.winner, found.points) == (None, [])
    assert all(found.headline in grid.notes for grid in study_grids(results))


def test_kept_accuracy_is_judged_on_unseen_data_if_there_is_some():
    """What counts is accuracy on unseen data: recognising fewer training samples is no loss."""
    methods = {"original": {0: (1.0, 1.0, 1.0)}, "one": {0: (0.0, 1.0, 1.0)}}
    results = results_of(methods)
    one = Group("one", "official", "")
    results.values[one][Place("train", "remote", "accuracy")] = {0: Value(0.9)}
    assert verdict(results).headline.startswith("one forgets and keeps")
    for group in results.values:
        for subset in ("forget", "adjacent", "remote"):
            del results.values[group][Place("test", subset, "accuracy")]
    assert "one forgets at a price: it loses 10.0 points of train remote accuracy" in verdict(results).headline


def test_a_method_that_loses_remote_accuracy_does_not_keep(tmp_path):
    """Remote data is to be kept too, not only adjacent data."""
    methods = {("original", ""): (1.0, 0.9, 0.9), ("greedy", ""): (0.0, 0.95, 0.75), ("gentle", ""): (0.3, 0.9, 0.9)}
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    assert found.headline.startswith("No method forgets and keeps: greedy forgets and loses 15.")
    assert "remote accuracy, with 0." in found.headline
    assert "recognised (before: 100.0%); gentle keeps and still recognises" in found.headline
    assert found.winner is not None
    assert found.winner.method == "gentle"
    assert dict(found.points)["Collapsed"].startswith("greedy loses")
    del methods["gentle", ""]
    alone = verdict(read_results(make_study(tmp_path / "b", methods=methods, failures=False)))
    assert alone.headline.startswith("greedy forgets, but ruins kept data: it loses 15.")
    assert alone.winner is None


def test_a_method_that_hardly_forgets_is_no_winner(tmp_path):
    """A method that does nothing also keeps everything."""
    methods = {("original", ""): (1.0, 0.9, 0.9), ("idle", ""): (0.99, 0.9, 0.9), ("thorough", ""): (0.0, 0.75, 0.9)}
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    assert "thorough forgets and loses 15." in found.headline
    assert "idle keeps and still recognises 99." in found.headline
    assert found.winner is None
    assert {"Accuracy on kept data", "Cost"}.isdisjoint(dict(found.points))
    assert dict(found.points)["Hardly forgot"].startswith("idle:")


def test_collapse_means_the_same_here_and_in_the_evaluation():
    assert COLLAPSE == goals.COLLAPSE


def test_the_numbers_of_the_paper_stand_beside_ours(tmp_path):
    results = read_results(make_study(tmp_path / "study", benchmark="cifar100-resnet18", seeds=2, failures=False))
    grid = paper_grid(results)
    ours = {(record["method"], record["split"], record["subset"]): record for record in grid.records}
    record = ours["two-stage", "test", "adjacent"]
    assert record["paper_mean"] == pytest.approx(0.7817)
    own = next(group for group in results.groups if group.method == "two-stage")
    assert record["ours_mean"] == results.mean(own, Place("test", "adjacent", "accuracy"))
    assert record["difference"] == pytest.approx(record["ours_mean"] - 0.7817)
    assert ours["scrub", "train", "forget"]["ours_mean"] is None  # in the paper, but not in this study
    assert ours["retrain", "train", "forget"]["paper_mean"] == pytest.approx(0.384)  # from another table of the paper
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
    # With another forget set, only the paper's rows on that forget set are shown.
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
def test_times_of_cells_that_shared_the_machine_say_so(tmp_path, runs, words):
    methods = {("original", ""): (1.0, 0.99, 0.99), ("one", ""): (0.0, 0.99, 0.99)}
    folder = make_study(tmp_path / "s", methods=methods, failures=False)
    for run in runs:
        Store(folder).write_provenance(run)
    results = read_results(folder)
    cost = next(grid for grid in study_grids(results) if grid.name == "cost")
    shown = [note for note in cost.notes if "at once" in note]
    assert bool(words) == bool(shown) == (words in dict(verdict(results).points)["Cost"] and bool(words))
    assert all(note.startswith(words) for note in shown)


def test_a_loss_without_a_common_seed_is_unknown():
    """If the original and a method have different seeds, the loss is unknown, not zero."""
    original, lost = {0: (1.0, 0.98, 0.98)}, {1: (0.0, 0.3, 0.98)}
    found = verdict(results_of({"original": original, "ft": lost}))
    assert found.headline.endswith("is not part of this study with a seed that the method has.")
    kept = {0: (0.0, 0.98, 0.98)}
    found = verdict(results_of({"original": original, "ft": lost, "ga": kept}))
    assert found.headline.startswith("ga forgets and keeps")
    assert dict(found.points)["At what cost?"].startswith("ft: no seed in common")


def test_retraining_with_other_settings_is_no_method(tmp_path):
    methods = {
        ("original", ""): (1.0, 0.99, 0.99),
        ("ft", ""): (0.9, 0.99, 0.99),
        ("retrain", "epochs=1"): (0.1, 0.9, 0.9),
    }
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    assert found.headline.startswith("ft keeps but does not forget")
    assert "retrains with other settings" in dict(found.points)["Against retraining"]


def test_a_value_of_fewer_seeds_says_so():
    results = results_of({"original": dict.fromkeys(range(3), (1.0, 0.9, 0.9))})
    group, place = next(iter(results.values)), Place("", "", "tow")
    results.values[group][place] = {1: Value(0.5)}
    found = grid(results, "other", "Other", [place])
    assert found.rows[0].entries[1].text == "0.500 (1 seed)"


def test_what_is_not_finite_is_never_best():
    assert marks({"a": float("inf"), "b": 1.0}, better="higher", metric="loss") == {"a": (), "b": ("best",)}


def test_losses_that_are_large_and_alike_have_a_histogram():
    far = Predictions(torch.tensor([[3e38, -3e38]] * 4, dtype=torch.float64), torch.ones(4, dtype=torch.long))
    assert sum(accuracy_and_losses(far)["loss_histogram"]["counts"]) == 4


def test_names_cannot_be_formulas_or_commands_in_a_table():
    names = ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "[2em]", "\\input{x}", "a\u202eb\x85c", "ft"]
    records = [{"name": name, "value": value} for name, value in zip(names, [-0.5, 1e-9, -3, None] * 3, strict=False)]
    rows = tuple(Row(name, (Entry("1"),)) for name in names)
    grid = Grid("g", "[title]", (Column("=head"),), rows, records)
    shown = list(csv.DictReader(io.StringIO(comma_separated(grid))))
    assert [row["name"] for row in shown] == ["'=1+1", "+1", "-1", "'@SUM(A1)", "' =1", *names[5:]]
    assert [row["value"] for row in shown[:4]] == ["-0.5", "1e-09", "-3", ""]
    text = latex(grid)
    assert "{[}2em{]} & 1" in text
    assert r"\textbackslash{}input\{x\}" in text
    assert r"a\textbackslash{}u202eb c & 1" in text
