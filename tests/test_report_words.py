from __future__ import annotations

import pytest

from tests.test_report import make_study
from unweave.evaluation import goals
from unweave.report import verdict as verdict_module
from unweave.report.formats import latex, markdown
from unweave.report.measures import Place
from unweave.report.paper import counterpart, paper_grid, printed
from unweave.report.results import read_results
from unweave.report.verdict import verdict


def test_the_verdict_follows_the_numbers(tmp_path):
    methods = {
        ("original", ""): (1.0, 0.99, 0.99),
        ("retrain", ""): (0.2, 0.99, 0.99),
        ("one", ""): (0.02, 0.98, 0.98),
        ("two", ""): (0.0, 0.7, 0.99),
        ("three", ""): (0.21, 0.99, 0.99),
        ("four", ""): (0.0, 0.94, 0.99),
        ("five", ""): (0.9, 0.99, 0.99),
    }
    found = verdict(read_results(make_study(tmp_path / "a", methods=methods, failures=False)))
    points = dict(found.points)
    assert found.headline.startswith("one forgets and keeps")
    assert points["Collapsed"].startswith("two loses")
    assert points["Paid with neighbours"].startswith("four:")
    assert points["Forgot in part"].startswith("three (")
    assert points["Hardly forgot"].startswith("five:")
    assert "is three," in points["Against retraining"]
    swapped = dict(zip(methods, [*list(methods.values())[:2], *list(methods.values())[:1:-1]], strict=True))
    again = verdict(read_results(make_study(tmp_path / "b", methods=swapped, failures=False)))
    assert again.headline.startswith("five forgets and keeps")


def test_the_verdict_admits_what_it_cannot_say(tmp_path):
    def said(name, methods):
        return verdict(read_results(make_study(tmp_path / name, methods=methods, seeds=1, failures=False))).text()

    one = {("one", ""): (0.5, 0.7, 0.9)}
    assert "the original model is not part of this study" in said("a", one)
    assert "No method keeps the neighbours" in said("b", {("original", ""): (1.0, 0.99, 0.99), **one})
    assert "holds no retrained model" in said("c", one)
    assert "No unlearning method" in said("d", {("original", ""): (1.0, 0.99, 0.99)})
    gentle = {("original", ""): (1.0, 0.99, 0.99), ("one", ""): (0.5, 0.99, 0.99)}
    assert "forgets fully: one comes nearest and still recognises" in said("e", gentle)


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
    assert printed(counterpart("cifar100-resnet18"))["retrain", ""]["train", "forget"].mean == pytest.approx(
        0.3844, abs=1e-3
    )
    assert any("ResNet-18 pretrained on ImageNet" in note for note in grid.notes)
    assert "beside the paper" in markdown(grid)
    assert latex(grid).count("multicolumn") == 2
