"""The whole suite on the embedded benchmark: goals, relearning, probe, certificate, audit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.calling import unlearn_with
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.tensors import same, weights
from tests.helpers.tiny import tiny
from unweave import Compute, Note, Split, UsageError, evaluate, unlearn
from unweave.evaluation import BeforeStage2, RelearnSettings, relearn
from unweave.evaluation.probe import balanced, probe_accuracy
from unweave.lab.audit import Pool, Subject, audit, examine, load_subject, make_shadows
from unweave.lab.audit.shadows import check_shadows
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import find_method


@pytest.fixture(scope="module")
def models(digits):
    """The original, four ways to unlearn, the first half of one of them, and two more retrained models."""
    benchmark, task, original = digits

    def by(name, seed=0, **more):
        settings = {**benchmark.settings_for(find_method(name), None), **more}
        settings["profile"] = next(iter(find_method(name).profiles))  # the benchmark's values belong to it
        initial = lambda: benchmark.initial(seed)  # noqa: E731
        return unlearn_with(
            original, task.train, name, seed=seed, initial=initial, compute=Compute("cpu"), **settings
        ).model

    return {
        "original": original,
        "two-stage": by("two-stage"),
        "stage 1": by("two-stage", stage2_epochs=0),
        "ft": by("ft"),
        "ga": by("ga"),
        "retrain": by("retrain"),
        "references": [by("retrain", seed=1), by("retrain", seed=2)],
    }


@pytest.fixture(scope="module")
def scores(digits, models):
    _, task, original = digits
    return {
        name: evaluate(
            models[name],
            task.train,
            task.test,
            reference=models["references"],
            original=original,
            compute=Compute("cpu"),
        )
        for name in ("original", "two-stage", "ft", "ga", "retrain")
    }


def test_the_two_goals_have_different_winners(scores):
    erased = {name: found.goals[0].value for name, found in scores.items()}
    never_trained = {name: found.goals[1].value for name, found in scores.items()}
    assert max(erased, key=erased.get) == "two-stage"
    assert max(never_trained, key=never_trained.get) == "retrain"
    assert erased["original"] == 0


def test_retrain_is_nearest_by_every_distance(scores):
    for name in ("tow", "tow_mia", "tow_split"):
        found = {method: score["model"][name] for method, score in scores.items()}
        assert max(found, key=found.get) == "retrain"
        assert scores["retrain"].metric(name).reference == pytest.approx(found["retrain"], abs=0.05)
    for name in ("prediction_total_variation", "prediction_jensen_shannon", "loss_wasserstein"):
        found = {method: score["train"]["forget"][name] for method, score in scores.items()}
        assert min(found, key=found.get) == "retrain"


def test_attacks_on_real_models(scores):
    assert scores["original"]["train"]["forget"]["mia_svc_confidence"] < 0.05
    assert scores["two-stage"]["train"]["forget"]["mia_svc_confidence"] > 0.95
    for name in ("mia_population_auc", "mia_rmia_auc"):
        metric = scores["retrain"].metric(name, "train", "forget")
        assert metric.low <= 0.5 <= metric.high
    assert scores["ga"].metric("mia_population_auc", "train", "forget").before is not None


def test_only_gradient_ascent_collapses(scores):
    flagged = {name for name, found in scores.items() if found.collapse}
    assert flagged == {"ga"}
    assert "adjacent" in scores["ga"].collapse


# Does it come back?


def test_what_was_hidden_comes_back_faster_than_what_was_never_learned(digits, models):
    _, task, _ = digits
    settings = RelearnSettings(learning_rate=1e-4, steps=20)
    hidden, never = (relearn(models[name], task.train, settings=settings, device="cpu") for name in ("ga", "retrain"))
    assert hidden.steps_to_accuracy(0.9) < never.steps_to_accuracy(0.9)
    assert hidden.steps_to_loss(0.3) < never.steps_to_loss(0.3)
    # Its neighbours alone bring the hidden subclass back, and never teach it.
    settings = RelearnSettings(steps=20)
    hidden, never = (
        relearn(models[name], task.train, source="adjacent", settings=settings, device="cpu")
        for name in ("ga", "retrain")
    )
    assert hidden.steps_to_accuracy(0.9) is not None
    assert never.steps_to_accuracy(0.9) is None


def test_relearning_in_scores(digits, models):
    _, task, original = digits
    before = weights(models["ga"])
    found = evaluate(
        models["ga"],
        task.train,
        reference=models["retrain"],
        original=original,
        questions=["relearn"],
        relearn=RelearnSettings(learning_rate=1e-4, steps=20),
        compute=Compute("cpu"),
    )
    steps = found.metric("relearn_steps", "train", "forget")
    assert 0 < steps.value < steps.reference
    relative = found.metric("relearn_relative", "train", "forget")
    assert relative.value == pytest.approx((1 + steps.value) / (1 + steps.reference))
    assert relative.reference == 1
    # What comes back later than retrained models learn it was not forgotten better: the nearest is best.
    names = [f"relearn_{name}{way}" for name in ("steps", "loss_steps", "relative") for way in ("", "_adjacent")]
    assert {found.metric(name, "train", "forget").better for name in names} == {"reference"}
    curve = found["relearning"]["forget"]["model"]["accuracy"]
    assert len(curve) == 21
    assert curve[int(steps.value)] >= 0.9
    adjacent = found.metric("relearn_relative_adjacent", "train", "forget")
    assert adjacent.value is None or adjacent.note
    assert same(before, weights(models["ga"]))


def test_relearning_is_deterministic_and_watches_what_is_not_shown(digits, models):
    _, task, _ = digits
    settings = RelearnSettings(steps=3)
    first, second = (relearn(models["ga"], task.train, settings=settings, seed=4, device="cpu") for _ in range(2))
    assert first == second
    too_few = Split(task.train.samples, [0], [1, 2], [3, 4])
    found = evaluate(models["ga"], too_few, questions=["relearn"], compute=Compute("cpu"))
    assert "two forget samples" in found.metric("relearn_steps", "train", "forget").note


def test_the_probe(digits, models):
    _, task, original = digits
    found = evaluate(
        models["two-stage"],
        task.train,
        task.test,
        reference=models["retrain"],
        original=original,
        questions=["probe"],
        compute=Compute("cpu"),
    ).metric("probe_accuracy", "test", "forget")
    assert found.low <= found.value <= found.high
    assert found.value > 0.9  # erased from the answers, not from the features
    assert found.reference == probe_accuracy(models["retrain"], task.train, task.test, device="cpu").value
    assert found.before == probe_accuracy(original, task.train, task.test, device="cpu").value


def test_the_interval_of_the_probe_has_its_95_percent_and_not_more():
    draw, counts, rates = np.random.default_rng(0), (100, 400), (0.8, 0.85)
    found = [balanced(*zip(draw.binomial(counts, rates), counts, strict=True)) for _ in range(1000)]
    covered = sum(one.low <= np.mean(rates) <= one.high for one in found)
    assert 930 <= covered <= 970
    assert balanced((10, 10), (10, 10)).high == 1


def test_a_probe_that_cannot_be_made_says_why(data, split):
    class NoHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, inputs):
            return inputs[:, :3] * self.scale

    wide = Split(data, forget=range(10), adjacent=range(10, 20), remote=range(20, 60))
    for train, test, words in (
        (wide, None, "No test data"),
        (split, split, "needs 10 forget samples"),
        (wide, wide, "no linear layer"),
    ):
        found = evaluate(NoHead(), train, test, questions=["probe"], compute=Compute("cpu"))
        assert words in found.metric("probe_accuracy", "test", "forget").note


# The certificate


def test_the_bound_of_the_two_stage_method(digits, models):
    _, task, _ = digits
    middle = BeforeStage2(models["stage 1"], alpha=0.5)
    found = evaluate(models["two-stage"], task.train, certificate=middle, questions=[], compute=Compute("cpu"))
    bound = found.metric("forget_bound", "train", "forget")
    assert found["train"]["forget"]["accuracy"] <= found["train"]["forget"]["forget_bound_tighter"] <= bound.value < 0.5
    assert "not a privacy guarantee" in bound.note
    untouched = evaluate(models["ft"], task.train, certificate=middle, questions=[], compute=Compute("cpu"))
    assert untouched.metric("forget_bound", "train", "forget").note.startswith("No bound: ")


# Saved models


@pytest.fixture(scope="module")
def run_folder(digits, tmp_path_factory):
    benchmark, task, original = digits
    folder = tmp_path_factory.mktemp("audit") / "run"
    settings = {**benchmark.settings_for(find_method("two-stage"), None), "stage1_epochs": 1, "stage2_epochs": 1}
    about = {"benchmark": "digits"}
    unlearn(
        original,
        task.train,
        "two-stage",
        profile="released",
        out=folder,
        test=task.test,
        compute=Compute("cpu"),
        callbacks=[Note(**about)],
        **settings,
    )
    return folder


def test_a_run_folder_knows_its_benchmark_method_and_middle(run_folder):
    subject = load_subject(run_folder)
    assert subject.method == "two-stage"
    assert subject.settings["stage2_epochs"] == 1
    assert subject.certificate.alpha == 0.5
    scores = examine(subject, retrain=0, device="cpu")
    assert scores.to_dict()["train"] == json.loads((run_folder / "scores.json").read_text())["train"]
    file = load_subject(run_folder / "model.safetensors", benchmark="digits")
    assert same(weights(file.model), weights(subject.model))
    assert file.method == "original"


def test_audit_with_shadow_models_resumes(digits, tmp_path, monkeypatch):
    benchmark, task, original = digits
    subject = Subject(model=original, train=task.train, test=task.test, benchmark=benchmark)
    said = []
    first = make_shadows(subject, Pool(subject.train, subject.test), 4, folder=tmp_path, device="cpu", say=said.append)
    assert len(said) == 4
    (tmp_path / "shadow-0002.safetensors").unlink()
    said.clear()
    again = make_shadows(subject, Pool(subject.train, subject.test), 4, folder=tmp_path, device="cpu", say=said.append)
    assert said == ["shadow model 3 of 4"]
    assert all(torch.equal(a[name], b[name]) for a, b in zip(first, again, strict=True) for name in a)
    seen = np.stack([shadow["forget.seen"] for shadow in again])
    assert (seen.sum(axis=0) == 2).all()

    scores = audit(subject, shadows=4, folder=tmp_path, resamples=50, device="cpu", relearn=RelearnSettings(steps=2))
    for subset in ("forget", "adjacent"):
        metric = scores.metric("mia_ulira_auc", "train", subset)
        assert metric.low <= metric.value <= metric.high
        assert "4 shadow models" in metric.note
    assert scores.metric("mia_ulira_auc", "train", "forget").value > 0.5
    assert scores.metric("mia_rmia_auc", "train", "adjacent").value is not None
    assert len({metric.place for metric in scores.metrics}) == len(scores.metrics)
    with pytest.raises(UsageError, match="another seed"):
        make_shadows(subject, Pool(subject.train, subject.test), 4, folder=tmp_path, seed=1, device="cpu")


def test_shadows_that_cannot_be_are_refused_before_anything_is_computed(digits, tmp_path, monkeypatch):
    benchmark, task, original = digits
    subject = Subject(model=original, train=task.train, test=task.test, benchmark=benchmark)
    monkeypatch.setitem(audit.__globals__, "examine", lambda *_, **__: pytest.fail("it was computed"))
    for count in (2, 3, 5):
        with pytest.raises(UsageError, match=f"{count} shadow models were requested. Use an even number, four or more"):
            audit(subject, shadows=count, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot be a folder for shadow models: a file is in the way"):
            audit(subject, shadows=4, folder=place)


@pytest.mark.parametrize("other", ["benchmark", "method", "settings", "train", "test"])
def test_a_folder_holds_shadow_models_of_one_kind_only(tmp_path, other):
    benchmark = tiny()
    task = benchmark.load()
    moved = Split(task.train.samples, forget=range(2, 10), adjacent=[0, 1, *range(10, 20)], remote=range(20, 60))
    changes = {
        "benchmark": tiny(small=True),
        "method": "pgd",
        "settings": {"stage1_epochs": 3},
        "train": moved,
        "test": None,
    }
    subject = Subject(
        model=benchmark.initial(0),
        train=task.train,
        test=task.test,
        benchmark=benchmark,
        method="two-stage",
        settings={"stage1_epochs": 2},
    )
    for _ in range(2):
        check_shadows(subject, 4, folder=tmp_path, seed=0)
    with pytest.raises(UsageError, match=f"with another {other}. Choose another folder"):
        check_shadows(replace(subject, **{other: changes[other]}), 4, folder=tmp_path, seed=0)


def test_audit_without_shadows_says_so(split, model, data):
    subject = Subject(model=model, train=split, test=None)
    scores = audit(subject, shadows=8, resamples=20, device="cpu", relearn=RelearnSettings(steps=2))
    assert "belongs to no benchmark" in scores.metric("mia_ulira_auc", "train", "forget").note
    with pytest.raises(UsageError, match="--reference"):
        examine(subject, retrain=1, device="cpu")


def my_subject():
    data = (torch.randn(40, 4), torch.arange(40) % 2)
    split = Split(data, forget=range(10), adjacent=range(10, 20), remote=range(20, 40))
    return nn.Linear(4, 2), split, None


def test_a_function_of_the_users_brings_model_and_data():
    subject = load_subject(None, source="tests.evaluation.test_evaluation_digits:my_subject")
    assert examine(subject, device="cpu")["train"]["forget"]["samples"] == 10
    for source, words in (
        ("tests.nowhere:x", "cannot be called"),
        ("tests.evaluation.test_evaluation_digits", "MODULE:FUNCTION"),
        ("tests.evaluation.test_evaluation_digits:find_benchmark", None),
    ):
        with pytest.raises((UsageError, TypeError), match=words):
            load_subject(None, source=source)


def my_tested_subject():
    model, split, _ = my_subject()
    return model, split, Split(split.samples.dataset, forget=range(4), adjacent=range(4, 8), remote=range(8, 40))


def test_files_of_splits_are_over_the_data_of_a_function_of_the_users(tmp_path):
    own = my_subject()[1]
    other = Split(own.samples.dataset, forget=range(3), adjacent=range(3, 20), remote=range(20, 40))
    other.save(tmp_path / "split.json")
    source = "tests.evaluation.test_evaluation_digits:my_tested_subject"

    def sizes(**files):
        subject = load_subject(None, source=source, **files)
        return len(subject.train["forget"]), subject.test and len(subject.test["forget"])

    file = tmp_path / "split.json"
    assert sizes() == (10, 4)
    assert sizes(split=file) == (3, None)  # the test split that there is goes with another training split
    assert sizes(test_split=file) == (10, 3)
    assert sizes(split=file, test_split=file) == (3, 3)
    with pytest.raises(UsageError, match=r"--test-split needs test data, but .*my_subject returns no test split"):
        load_subject(None, source="tests.evaluation.test_evaluation_digits:my_subject", test_split=file)
    with pytest.raises(UsageError, match="Give one of them"):
        load_subject(None, source=source, benchmark="digits")


def test_saved_models_that_cannot_be_opened(run_folder, tmp_path):
    with pytest.raises(UsageError, match="--benchmark NAME"):
        load_subject(run_folder / "model.safetensors")
    with pytest.raises(UsageError, match="Say which model to examine"):
        load_subject(None, benchmark="digits")
    with pytest.raises(UsageError, match="nope does not exist"):
        load_subject(tmp_path / "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty has no run\.json, so it is not the folder of a run"):
        load_subject(tmp_path / "empty", benchmark="digits")
    task = find_benchmark("digits").load()
    Split(task.train.samples, [0, 1], [2, 3]).save(tmp_path / "split.json")
    other = load_subject(run_folder, split=tmp_path / "split.json")
    assert len(other.train.forget) == 2
    config = configuration(run_folder)
    copy = tmp_path / "copy"
    copy.mkdir()
    write_configuration(copy, {**config, "split": "else"})
    with pytest.raises(UsageError, match="another split"):
        load_subject(copy)


def test_another_split_does_not_get_the_benchmarks_test_split(run_folder, tmp_path):
    task = find_benchmark("digits").load()
    train, test = Split(task.train.samples, [0, 1], [2, 3]), Split(task.test.samples, [4, 5, 6], [7])
    train.save(tmp_path / "train.json")
    test.save(tmp_path / "test.json")
    assert load_subject(run_folder).test == task.test
    given = load_subject(run_folder, split=tmp_path / "train.json")
    assert (given.train == train, given.test) == (True, None)
    assert load_subject(run_folder, split=tmp_path / "train.json", test_split=tmp_path / "test.json").test == test

    on_record = tmp_path / "on record"  # has its split, and at first no test split
    shutil.copytree(run_folder, on_record)
    config = configuration(on_record)
    write_configuration(on_record, {**config, "split": train.hash})
    train.save(on_record / "split.json")
    assert load_subject(on_record).test is None
    test.save(on_record / "test-split.json")
    assert load_subject(on_record).test == test
    assert load_subject(on_record, split=tmp_path / "train.json").test == test
    task.train.save(tmp_path / "other.json")
    assert load_subject(on_record, split=tmp_path / "other.json").test is None
