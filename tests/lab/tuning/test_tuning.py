"""Tuning: the same number of trials for each method, judged on held-out training data, exact resume."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.folders import configuration
from tests.helpers.places import ROOT
from tests.helpers.tiny import SOURCE, tiny
from unweave import Split, UsageError
from unweave.cli.app import app, say
from unweave.evaluation import Predictions
from unweave.lab.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from unweave.lab.benchmarks.tuned_profiles import with_tuned
from unweave.lab.study import plan
from unweave.lab.tuning import Space, Tuning, carve, tune, tuned_methods
from unweave.lab.tuning.objectives import as_retrained, erase
from unweave.lab.tuning.searches import RANDOM_FIRST, MethodSearch, Tried, open_storage
from unweave.lab.tuning.tuning_folder import Folder, chosen
from unweave.settings import Choices, Span
from unweave.storage import Lock

SUBSETS = ("forget", "adjacent", "remote")
QUICK = ["ga", "ssd"]


def rows(folder, *, timed=False):
    """Return the trials without the columns that depend on the clock."""
    with (folder / "trials.csv").open() as file:
        return [{key: value for key, value in row.items() if timed or key != "seconds"} for row in csv.DictReader(file)]


def broken(method, **values) -> Benchmark:
    """The tiny benchmark with other values for a method."""
    benchmark = tiny()
    return dataclasses.replace(benchmark, settings={**benchmark.settings, method: {"official": values}})


def answers(**right):
    """Return predictions that are right for these shares of ten samples."""
    found = {}
    for subset, share in right.items():
        logits = torch.zeros(10, 2)
        logits[torch.arange(10), (torch.arange(10) >= 10 * share).long()] = 1.0
        found[subset] = Predictions(logits, torch.zeros(10, dtype=torch.long))
    return found


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A tuning of two quick methods that ran without interruption."""
    folder = tmp_path_factory.mktemp("tuning") / "t"
    tune(SOURCE, folder, methods=QUICK, trials=10, device="cpu")
    return folder


# What is searched


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_search_space_holds_the_default_and_only_allowed_values(name):
    benchmark = find_benchmark(name)
    assert set(tuned_methods(["all"])) == set(ON_ANYTHING) - {"original", "retrain"}
    for method in tuned_methods(["all"]):
        space = Space.of(benchmark, method, goal="erase")
        assert space.searched
        for setting, of in space.searched.items():
            value = space.default[setting]
            if isinstance(of, Span):
                assert of.low <= value <= of.high
            else:
                assert value in of.values
            for end in (of.low, of.high) if isinstance(of, Span) else of.values:
                find_benchmark(name).method(method).configure({**space.default, setting: end})


def test_step_sizes_are_searched_a_factor_of_thirty_around_the_benchmarks_own():
    space = Space.of(find_benchmark("digits"), "ft", goal="erase")
    assert space.searched == {"learning_rate": Span(0.003333, 3.0), "epochs": Choices((10, 20, 40))}
    assert space.printed["learning_rate"] == 2e-5


def test_on_toxigen_step_sizes_are_searched_where_an_encoder_lives():
    benchmark = find_benchmark("toxigen-roberta")
    spaces = {name: Space.of(benchmark, name, goal="erase") for name in tuned_methods(["all"])}
    for name in ("ft", "ga", "l1-sparse", "scrub", "salun", "delete", "gdr", "munba"):
        assert spaces[name].searched["learning_rate"] == Span(1e-5, 1e-3)
    for name in ("two-stage", "pgd"):  # stage 1 as released takes shorter steps
        assert spaces[name].searched["stage1_learning_rate"] == Span(2.5e-6, 1e-3)
        assert spaces[name].searched["stage2_learning_rate"] == Span(1e-5, 1e-3)
    assert Space.of(find_benchmark("clinc150"), "ft", goal="erase").searched["learning_rate"].high == 0.3


def test_the_closed_form_of_munba_is_tried_after_the_papers_settings_and_drawn_by_the_search():
    space = Space.of(find_benchmark("digits"), "munba", goal="erase")
    assert [space.fixed(number) for number in range(4)] == ["default", "paper", "closed-form", "searched"]
    closed = space.settings("closed-form", {})
    assert {name for name in closed if closed[name] != space.default[name]} == {"literal_weights"}
    assert space.default["literal_weights"]
    assert space.searched["literal_weights"].values == (True, False)
    assert "closed_form" not in Space.of(find_benchmark("digits"), "ft", goal="erase").as_kept()


def test_pgd_stays_the_ablation_that_it_is():
    assert "alpha" not in Space.of(find_benchmark("digits"), "pgd", goal="erase").searched


def test_what_cannot_be_tuned_is_refused_before_anything_runs(tmp_path):
    for arguments, message in (
        ({"methods": ["two-stge"]}, "Did you mean 'two-stage'"),
        ({"methods": ["ga", "retrain"]}, "retrain has nothing to tune"),
        ({"methods": []}, "at least one method"),
        ({"goal": "forget"}, "There is no goal 'forget'"),
        ({"trials": 0}, "at least one trial"),
        ({"seeds": 0}, "at least one trial and one seed"),
    ):
        with pytest.raises(UsageError, match=message):
            tune(SOURCE, tmp_path / "t", device="cpu", **arguments)
    assert not (tmp_path / "t").exists()


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"Tuning needs the package optuna: pip install 'unweave\[lab\]'"):
        tune(SOURCE, tmp_path / "t", device="cpu")


# What it is judged on


def test_a_fifth_of_every_subset_is_held_out():
    task = tiny().load()
    carved = carve(task, seed=100)
    for subset in SUBSETS:
        assert len(carved.test[subset]) == round(0.2 * len(task.train[subset]))
        both = np.concatenate([carved.train[subset], carved.test[subset]])
        assert sorted(both) == task.train[subset].tolist()
    assert carved.train.samples is carved.test.samples is task.train.samples


def test_of_texts_all_forget_data_is_judged():
    """A fact is not forgotten because another one is; what is kept is judged on what is held out."""
    task = tiny().load()
    carved = carve(task, seed=100, texts=True)
    assert sorted(carved.test.forget) == sorted(carved.train.forget) == task.train.forget.tolist()
    for subset in ("adjacent", "remote"):
        assert not set(carved.test[subset].tolist()) & set(carved.train[subset].tolist())


class Forbidden(torch.utils.data.Dataset):
    """Test data that must not be read."""

    def __len__(self):
        return 60

    def __getitem__(self, row):
        raise AssertionError("the test data was read")


def test_the_test_data_is_never_read(tmp_path):
    whole = tiny().load()
    test = Split(Forbidden(), forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    with pytest.raises(AssertionError):
        test.samples.read(torch.tensor([0]))
    task = dataclasses.replace(whole, test=test)
    for goal in ("erase", "retrain"):
        source = dataclasses.replace(tiny(), load=lambda: task)
        tuning = tune(lambda source=source: source, tmp_path / goal, trials=1, goal=goal, device="cpu")
        assert tuning.left() == {}
        assert set(tuning.best["methods"]) == set(ON_ANYTHING) - {"original", "retrain"}


def test_the_objectives():
    original = answers(forget=1.0, adjacent=1.0, remote=1.0)
    ruined = answers(forget=0.0, adjacent=0.0, remote=1.0)
    erased = answers(forget=0.0, adjacent=1.0, remote=1.0)
    retrained = answers(forget=0.7, adjacent=1.0, remote=1.0)
    assert [erase(found, original) for found in (original, ruined, erased)] == [0, 0, 1]
    assert erase(retrained, original) == pytest.approx(3 / (1 / 0.3 + 1 + 1))
    found = answers(forget=0.5, adjacent=0.9, remote=1.0)
    assert as_retrained(found, retrained) == pytest.approx(0.8 * 0.9)
    assert as_retrained(retrained, retrained) == 1
    assert as_retrained(erased, retrained) < as_retrained(original, retrained)


def test_what_the_original_did_not_know_is_no_merit_of_erasing():
    original = answers(forget=0.8, adjacent=0.5, remote=0.8)
    kept = answers(forget=0.0, adjacent=0.5, remote=0.8)
    bought = answers(forget=0.0, adjacent=0.9, remote=0.6)  # adjacent accuracy at the expense of remote accuracy
    assert erase(kept, original) == erase(answers(forget=0.0, adjacent=0.9, remote=0.9), original) == 1
    assert erase(bought, original) == pytest.approx(3 / (1 + 1 + 0.8 / 0.6))
    assert erase(kept, answers(forget=0.8, adjacent=0.0, remote=0.8)) == 1


def test_trials_are_not_judged_by_two_objectives(tmp_path):
    tune(SOURCE, tmp_path / "t", methods=["ga"], trials=1, device="cpu")
    file = tmp_path / "t" / "tuning.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({**about, "objective": "another"}))
    with pytest.raises(UsageError, match="a tuning with objective another, not harmonic mean of"):
        tune(SOURCE, tmp_path / "t", methods=["ga"], trials=2, device="cpu")


def test_trials_are_judged_again_by_another_objective(tuned, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    old = tmp_path / "old"
    shutil.copytree(tuned, old)
    about = json.loads((old / "tuning.json").read_text())
    (old / "tuning.json").write_text(json.dumps({name: value for name, value in about.items() if name != "objective"}))
    storage = open_storage(old / "optuna.db")
    for name in QUICK:  # as if another objective had judged: the later, the better
        for trial in storage.get_all_trials(storage.get_study_id_from_name(name)):
            tried = {**trial.user_attrs["tried"], "score": trial.number / 100, "scores": [trial.number / 100]}
            with sqlite3.connect(old / "optuna.db") as database:
                database.execute(
                    "UPDATE trial_user_attributes SET value_json = ? WHERE trial_id = ? AND key = 'tried'",
                    (json.dumps(tried), trial._trial_id),
                )
    judge_again = importlib.import_module("judge_again").judge_again
    judge_again(old, tmp_path / "new", tiny(), device="cpu")
    assert rows(tmp_path / "new") == rows(tuned)
    best, expected = (json.loads((folder / "best.json").read_text()) for folder in (tmp_path / "new", tuned))
    assert [run["command"].split()[0] for run in best.pop("provenance")["runs"]] == ["unweave", "python"]
    del expected["provenance"]
    assert best == expected
    more = [
        tune(SOURCE, folder, methods=QUICK, trials=11, device="cpu") for folder in (tmp_path / "new", tmp_path / "b")
    ]
    assert more[0].best["trials"] == 11
    assert rows(tmp_path / "new") == rows(tmp_path / "b")
    with pytest.raises(UsageError, match="a tuning that is done"):
        judge_again(old, tmp_path / "new", tiny(), device="cpu")
    with pytest.raises(UsageError, match="The settings of ga or their search space have changed"):
        judge_again(old, tmp_path / "other", broken("ga", epochs=7), device="cpu")
    (old / "tuning.json").write_text(json.dumps({**about, "seeds": 2}))
    with pytest.raises(UsageError, match="with 2 seeds"):
        judge_again(old, tmp_path / "other", tiny(), device="cpu")
    assert not (tmp_path / "other").exists()


def test_several_seeds_judge_by_their_mean(tmp_path):
    def first(name, **arguments):
        tune(SOURCE, tmp_path / name, methods=["ga"], trials=1, device="cpu", **arguments)
        (row,) = rows(tmp_path / name)
        return np.array([float(row[column]) for column in ("score", *SUBSETS, "sample_gradients")])

    one, other, both = first("one", seed=100), first("other", seed=101), first("both", seed=100, seeds=2)
    assert (one != other).any()
    assert both[:-1] == pytest.approx((one + other)[:-1] / 2)
    assert both[-1] == one[-1] + other[-1]
    models = {path.name for path in (tmp_path / "both" / "models").iterdir()}
    assert models == {"original.seed-100.safetensors", "original.seed-101.safetensors"}


def test_a_trial_that_is_clearly_behind_is_not_run_with_every_seed(tmp_path, monkeypatch):
    def tuned(name, behind):
        monkeypatch.setattr(importlib.import_module("unweave.lab.tuning.tune"), "BEHIND", behind)
        tune(SOURCE, tmp_path / name, methods=["ga", "ft"], trials=8, seeds=3, device="cpu")
        return rows(tmp_path / name), json.loads((tmp_path / name / "best.json").read_text())["methods"]

    (raced, best), (whole, expected) = tuned("raced", 0.05), tuned("whole", 2.0)
    assert {row["seeds"] for row in whole} == {"3"}
    assert {row["seeds"] for row in raced if row["origin"] != "searched"} == {"3"}
    behind = [row for row in raced if row["seeds"] in ("1", "2")]
    assert behind
    for row in behind:
        before = [r for r in raced if r["method"] == row["method"] and int(r["trial"]) < int(row["trial"])]
        rival = max(before, key=lambda r: float(r["score"]))
        assert rival["seeds"] == "3"
        assert float(row["score"]) < float(rival["score"]) - 0.05
        in_full = next(r for r in whole if (r["method"], r["trial"]) == (row["method"], row["trial"]))
        if in_full["settings"] == row["settings"]:  # the sampler learns from scores, so later trials may differ
            assert int(row["sample_gradients"]) < int(in_full["sample_gradients"])
    for method, entry in best.items():
        assert entry["cost"]["sample_gradients"] <= expected[method]["cost"]["sample_gradients"]
        assert entry["score"] == pytest.approx(expected[method]["score"], abs=0.05)


def test_a_model_that_never_saw_the_forget_data_is_the_measure_of_the_goal_retrain(tmp_path):
    tune(SOURCE, tmp_path / "t", methods=["ft"], trials=1, goal="retrain", device="cpu")
    assert {path.name for path in (tmp_path / "t" / "models").iterdir()} == {
        "original.seed-100.safetensors",
        "retrained.seed-100.safetensors",
    }
    best = json.loads((tmp_path / "t" / "best.json").read_text())
    assert (best["goal"], best["benchmark"], best["held_out"]) == ("retrain", "tiny", 0.2)


def test_trials_share_the_reference_and_each_pays_for_it(tmp_path, monkeypatch):
    made, train = [], Benchmark.train_briefly

    def train_briefly(*arguments, **more):
        made.append(train(*arguments, **more))
        return made[-1]

    monkeypatch.setattr(Benchmark, "train_briefly", train_briefly)
    tune(SOURCE, tmp_path / "t", methods=["unweave"], trials=2, goal="retrain", device="cpu")
    (only,) = made
    assert all(int(row["sample_gradients"]) > only.cost.sample_gradients > 0 for row in rows(tmp_path / "t"))


# How it is searched


def test_the_precision_is_that_of_trials_and_of_what_they_start_from(tmp_path):
    asked = {"methods": ["ga"], "trials": 1, "device": "cpu", "compile": "off"}
    originals = {}
    for precision, workers in (("float32", 1), ("bfloat16", 1), ("bfloat16", 2)):
        folder = tmp_path / f"{precision}-{workers}"
        tune(SOURCE, folder, precision=precision, workers=workers, **asked)
        originals[precision, workers] = load_file(folder / "models" / "original.seed-100.safetensors")
    plain, short, by_workers = originals.values()
    assert any(not torch.equal(plain[name], short[name]) for name in plain)
    assert all(torch.equal(short[name], by_workers[name]) for name in short)
    with pytest.raises(UsageError, match="float16"):
        tune(SOURCE, tmp_path / "other", **{**asked, "precision": "float16"})
    assert not (tmp_path / "other").exists()


def test_each_method_has_exactly_as_many_trials_and_none_loses_to_its_default_or_the_paper(tuned):
    best = json.loads((tuned / "best.json").read_text())
    assert list(best["methods"]) == QUICK
    for name, found in best["methods"].items():
        own = [row for row in rows(tuned) if row["method"] == name]
        assert [int(row["trial"]) for row in own] == list(range(10))
        second = "paper" if name == "ga" else "searched"  # ssd's printed values are its default here
        assert [row["origin"] for row in own] == ["default", second, *["searched"] * 8]
        scores = [float(row["score"]) for row in own]
        assert found["score"] == max(scores)
        assert found["trial"] == scores.index(max(scores))
        assert found["default_score"] == scores[0]
        assert json.loads(own[0]["settings"]) == {}
        assert len({row["settings"] for row in own}) > 8  # they are different settings
        assert found["cost"]["trials"] == 10
        assert found["cost"]["sample_gradients"] == sum(int(row["sample_gradients"]) for row in own) > 0
        assert found["cost"]["seconds"] > 0
    (run,) = json.loads((tuned / "provenance.json").read_text())["runs"]
    assert best["provenance"]["runs"] == [run]
    assert {"commit", "date", "hardware"} <= set(run)
    assert "optuna" in run["versions"]
    assert best["training_seconds"] > 0


def test_the_default_stays_unless_it_is_beaten_by_more_than_a_standard_error():
    def trial(number, origin, *scores):
        return Tried(
            method="ga", trial=number, origin=origin, settings={}, score=statistics.fmean(scores), scores=scores
        )

    default, paper = trial(0, "default", 0.7, 0.8, 0.9), trial(1, "paper", 0.75, 0.85, 0.95)
    good, better = trial(2, "searched", 0.8, 0.9, 1.0), trial(3, "searched", 0.9, 0.9, 0.93)
    assert good.standard_error == pytest.approx(0.1 / 3**0.5)
    assert chosen([default, paper, good]) is paper  # 0.90 ± 0.06 beats 0.80, and not 0.85
    assert chosen([paper, default, trial(2, "searched", 0.8, 0.8, 0.95)]) is paper  # the first of both
    assert chosen([default, paper, good, better]) is better  # 0.91 ± 0.01
    assert chosen([trial(0, "default", 0.8), trial(1, "searched", 0.81)]).trial == 1  # one seed gives no standard error
    assert chosen([trial(0, "default", 0.86, 0.86, 0.86), trial(1, "paper", 0.87, 0.87, 0.87), good]).origin == "paper"


def test_settings_that_failed_are_not_chosen_because_a_person_wrote_them_down():
    failed = Tried(method="ga", trial=0, origin="default", settings={}, error="diverged")
    low = Tried(method="ga", trial=1, origin="searched", settings={}, score=0.1, scores=(0.0, 0.0, 0.3))
    assert low.score <= low.standard_error
    assert chosen([failed, low]) is low


def test_of_equal_trials_the_one_that_cost_least_is_chosen():
    def trial(number, score, gradients, error=""):
        return Tried(
            method="ga",
            trial=number,
            origin="searched",
            settings={},
            score=score,
            sample_gradients=gradients,
            error=error,
        )

    assert chosen([trial(2, 0.9, 500), trial(3, 0.9, 200), trial(4, 0.9, 200), trial(5, 0.8, 100)]).trial == 3
    assert chosen([trial(2, 0.0, None, "diverged"), trial(3, 0.0, 500)]).trial == 3
    assert chosen([trial(2, 0.0, None, "diverged"), trial(3, 0.0, None, "diverged")]).trial == 2


def test_the_same_seed_finds_the_same_and_another_does_not(tuned, tmp_path):
    tune(SOURCE, tmp_path / "same", methods=["ssd", "ga"], trials=10, device="cpu")
    assert rows(tmp_path / "same") == rows(tuned)
    tune(SOURCE, tmp_path / "other", methods=QUICK, trials=4, seed=101, device="cpu")
    settings = [[row["settings"] for row in rows(folder)] for folder in (tmp_path / "other", tuned)]
    assert set(settings[0]) - set(settings[1])


def test_it_resumes_where_it_stopped_and_beyond_to_the_same_end(tuned, tmp_path):
    folder = tmp_path / "t"
    assert tune(SOURCE, folder, methods=QUICK, trials=10, device="cpu", time_limit=0).left() == dict.fromkeys(QUICK, 10)
    assert not (folder / "best.json").exists()
    tune(SOURCE, folder, methods=["ga"], trials=3, device="cpu")
    # A process died during a trial: the storage of an older unweave holds it as running.
    space = Space.of(tiny(), "ga", goal="erase")
    MethodSearch(open_storage(folder / "optuna.db"), space, seed=100).study.ask()
    before = rows(folder, timed=True)
    tune(SOURCE, folder, methods=QUICK, trials=10, device="cpu")
    assert rows(folder) == rows(tuned)
    assert [row for row in rows(folder, timed=True) if row in before] == before  # nothing ran again
    done = (folder / "best.json").read_bytes()
    tune(SOURCE, folder, methods=QUICK, trials=10, device="cpu")
    assert (folder / "best.json").read_bytes() == done


def test_tuning_resumes_after_a_kill_as_if_nothing_had_happened(tuned, tmp_path):
    code = (
        "import torch; from pathlib import Path; from tests.helpers.tiny import SOURCE;"
        "from unweave.lab.tuning import tune;"
        "torch.set_num_threads(1);"
        f"tune(SOURCE, Path('t'), methods={QUICK}, trials=10, device='cpu', write=lambda text: print(text, flush=True))"
    )
    where = os.pathsep.join([str(ROOT), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": where},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert any(line.startswith("[7/20]") for line in process.stdout)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "t" / "trials.csv").exists()
    said = []
    tune(SOURCE, tmp_path / "t", methods=QUICK, trials=10, device="cpu", write=said.append)
    assert int(said[0].split("/")[0].removeprefix("[")) > 7  # finished trials do not run again
    assert said[-1].startswith("[20/20]")
    assert rows(tmp_path / "t") == rows(tuned)


def test_unequal_trials_make_no_profile(tmp_path):
    tune(SOURCE, tmp_path / "t", methods=["ga"], trials=1, device="cpu")
    assert (tmp_path / "t" / "best.json").exists()
    assert tune(SOURCE, tmp_path / "t", methods=["ssd"], trials=2, device="cpu").best is None
    assert not (tmp_path / "t" / "best.json").exists()


def test_the_first_trials_can_be_used_when_time_is_up(tuned, tmp_path):
    """As many of each method as all have finished, whatever the others had later."""
    tune(SOURCE, tmp_path / "t", methods=["ga"], trials=4, device="cpu")
    tune(SOURCE, tmp_path / "t", methods=["ssd"], trials=2, device="cpu")
    tuning = Tuning(tiny(), tmp_path / "t", ["ga", "ssd"], trials=10, goal="erase")
    assert tuning.write_best_of_first(tmp_path / "first") == 2
    assert not (tmp_path / "t" / "best.json").exists()
    best = json.loads((tmp_path / "first" / "best.json").read_text())
    assert best["trials"] == 2
    scores = [float(row["score"]) for row in rows(tmp_path / "t") if row["method"] == "ga"][:2]
    assert best["methods"]["ga"]["highest_score"] == max(scores)
    assert best["methods"]["ga"]["cost"]["trials"] == 2
    more = Tuning(tiny(), tmp_path / "t", ["ga", "ssd", "ft"], trials=10, goal="erase")
    assert more.write_best_of_first(tmp_path / "none") == 0
    assert not (tmp_path / "none").exists()


def test_workers_find_what_one_process_finds(tuned, tmp_path):
    tune(SOURCE, tmp_path / "t", methods=QUICK, trials=10, workers=2, device="cpu", write=say)
    assert rows(tmp_path / "t") == rows(tuned)


def test_random_trials_of_a_method_do_not_wait_for_each_other(tuned, tmp_path):
    folder = tmp_path / "t"
    tune(SOURCE, folder, methods=["ga"], trials=10, device="cpu", time_limit=0)
    with Lock(folder / "locks" / "trial.ga.0.lock"):  # somebody is at the first trial, for long
        said = []
        tune(SOURCE, folder, methods=["ga"], trials=10, device="cpu", time_limit=8, write=said.append)
    assert [row["trial"] for row in rows(folder)] == ["1", "2", "3", "4", "5"]  # the next would learn from the first
    assert not (folder / "best.json").exists()
    tune(SOURCE, folder, methods=QUICK, trials=10, device="cpu")
    assert rows(folder) == rows(tuned)


def test_which_trials_can_be_run_now(tmp_path):
    search = MethodSearch(open_storage(tmp_path / "optuna.db"), Space.of(tiny(), "ga", goal="erase"), seed=1)
    assert search.ready(10, at_once=True) == list(range(RANDOM_FIRST))
    assert search.ready(3, at_once=True) == [0, 1, 2]
    assert search.ready(10, at_once=False) == [0]
    for number in (0, 2, 1, 4):
        search.tell(*search.ask(number))
    assert [tried.trial for tried in search.tried()] == [0, 1, 2, 4]
    assert search.ready(10, at_once=True) == [3, 5]
    assert search.ready(10, at_once=False) == [3]
    for number in (5, 3):
        search.tell(*search.ask(number))
    assert search.ready(10, at_once=True) == [6]
    assert search.ready(6, at_once=True) == []


def test_with_several_seeds_trials_wait_for_the_best_one_before_them(tmp_path):
    asked = {"trials": 6, "goal": "erase"}
    both = {seeds: Tuning(tiny(), tmp_path / f"{seeds}", QUICK, **asked, seeds=seeds).ready() for seeds in (1, 2)}
    assert both[1] == [(number, name) for number in range(6) for name in QUICK]
    assert both[2] == [(0, name) for name in QUICK]


def test_a_failed_trial_has_the_worst_score_and_is_not_run_again(tmp_path):
    source = lambda: broken("ga", learning_rate=1e30)  # noqa: E731
    tuning = tune(source, tmp_path / "t", methods=["ga"], trials=3, device="cpu")
    first, second, _ = rows(tmp_path / "t")
    assert (first["score"], first["forget"], first["sample_gradients"]) == ("0.0", "", "")
    assert "became" in first["error"]
    assert second["error"] == ""
    found = tuning.best["methods"]["ga"]
    assert found["cost"]["failed"] == 2  # the third is searched around the default
    assert found["origin"] == "paper"
    before = (tmp_path / "t" / "trials.csv").read_text()
    tune(source, tmp_path / "t", methods=["ga"], trials=3, device="cpu")
    assert (tmp_path / "t" / "trials.csv").read_text() == before


def test_a_trial_that_torch_itself_gives_up_is_a_failed_trial(tmp_path, monkeypatch):
    module, calls = importlib.import_module("unweave.lab.tuning.tune"), []
    real = module.unlearn

    def unlearn(*arguments, **more):
        calls.append(None)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")
        return real(*arguments, **more)

    monkeypatch.setattr(module, "unlearn", unlearn)
    tune(SOURCE, tmp_path / "t", methods=["ga"], trials=3, device="cpu")
    assert [row["error"] for row in rows(tmp_path / "t")] == ["", "CUDA out of memory. Tried to allocate 2 GiB", ""]


def test_a_trial_that_took_a_process_down_is_left_to_the_next_start(tmp_path):
    folder = tmp_path / "t"
    tune(SOURCE, folder, methods=QUICK, trials=1, device="cpu", time_limit=0)
    (folder / "locks" / "trial.ga.0.begun").write_text(f"{time.time() + 100}\n")  # by a worker of this very start
    assert tune(SOURCE, folder, methods=QUICK, trials=1, device="cpu").left() == {"ga": 1}


def test_a_folder_that_another_process_just_began_is_not_of_something_else(tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "tuning.json.partial").write_text("{")  # and died
    assert Folder(begun, tiny(), goal="erase", seed=1, seeds=1).about["seed"] == 1

    class Late(type(tmp_path)):
        """A folder that another process fills while this one looks."""

        def iterdir(self):
            yield from super().iterdir()
            Folder(Path(self), tiny(), goal="erase", seed=1, seeds=1).note_time("original", 1.0)
            yield from super().iterdir()

    (tmp_path / "new").mkdir()
    Folder(Late(tmp_path / "new"), tiny(), goal="erase", seed=1, seeds=1)


def test_a_time_that_was_not_written_to_its_end_is_skipped(tmp_path):
    folder = Folder(tmp_path / "t", tiny(), goal="erase", seed=1, seeds=1)
    folder.note_time("original", 1.5)
    with (folder.place / "times.jsonl").open("a") as file:
        file.write('{"name": "ret')
    tried = Tried(method="ga", trial=0, origin="default", settings={}, score=0.5)
    assert folder.write({"ga": [tried]})["training_seconds"] == 1.5


def test_the_default_and_the_paper_are_run_with_every_seed(tmp_path):
    search = MethodSearch(open_storage(tmp_path / "optuna.db"), Space.of(tiny(), "ga", goal="erase"), seed=1)
    found = []
    for number, score in enumerate((0.9, 0.5, 0.7)):
        drawn, tried = search.ask(number)
        found.append((tried.origin, rival.trial if (rival := search.rival(tried)) else None))
        search.tell(drawn, dataclasses.replace(tried, score=score, scores=(score, score)))
    assert found == [("default", None), ("paper", None), ("searched", 0)]


def test_a_folder_of_something_else_is_refused(tuned, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no tuning"):
        tune(SOURCE, tmp_path / "x", device="cpu")
    (tmp_path / "newer").mkdir()
    about = json.loads((tuned / "tuning.json").read_text())
    (tmp_path / "newer" / "tuning.json").write_text(json.dumps({**about, "data": "half"}))
    with pytest.raises(UsageError, match="with data half, not None"):
        tune(SOURCE, tmp_path / "newer", device="cpu")
    with pytest.raises(UsageError, match="with goal erase, not retrain"):
        tune(SOURCE, tuned, goal="retrain", device="cpu")
    with pytest.raises(UsageError, match="ga or their search space have changed"):
        tune(lambda: broken("ga", epochs=99), tuned, methods=["ga"], device="cpu")


# What it is for


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr("unweave.lab.benchmarks.find_benchmark", lambda name, **more: tiny())
    words = ["tune", "tiny", "--out", str(tmp_path / "t"), "--methods", "ga,ssd", "--trials", "2", "--device", "cpu"]
    stopped = CliRunner().invoke(app, [*words, "--time-limit", "0", "--json"])
    assert json.loads(stopped.stdout) == {
        "out": str(tmp_path / "t"),
        "goal": "erase",
        "trials": 4,
        "done": 0,
        "best": {},
    }
    assert "0 of 4 trials are done" in stopped.stderr
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.exception) == (0, None)
    assert "[4/4] ssd trial 1" in done.stderr
    header, _, *lines = done.stdout.splitlines()
    assert header.split() == ["method", "default", "tuned", *SUBSETS, "failed", "time", "gradients"]
    assert [line.split()[0] for line in lines[:2]] == QUICK
    assert max(map(len, lines[:2])) <= 80
    assert "--profiles tuned --tuned" in done.stdout


@pytest.mark.parametrize("more", [[], ["--small", "--option", "forget=3"]])
def test_the_command_that_is_printed_works_as_it_stands(tmp_path, more):
    out = str(tmp_path / "my tuning")
    words = ["tune", "digits", *more, "--out", out, "--methods", "ga,ssd", "--trials", "1", "--device", "cpu"]
    printed = CliRunner().invoke(app, words).stdout.rpartition("Use it: unweave ")[2]
    done = CliRunner().invoke(app, [*shlex.split(printed), "--seeds", "1", "--time-limit", "0", "--json"])
    assert (done.exit_code, done.exception) == (0, None)
    assert json.loads(done.stdout)["cells"] == 4


def test_the_search_space_and_the_profile_are_listed():
    assert "    tuned: 1/30 to 30 times the benchmark's value" in CliRunner().invoke(app, ["methods", "ga"]).stdout
    content = json.loads(CliRunner().invoke(app, ["methods", "ssd", "--json"]).stdout)
    assert content["settings"][0]["search"] == "1 to 100, logarithmic"
    assert (
        "profile tuned: goal erase, 20 trials of each method"
        in CliRunner().invoke(app, ["benchmarks", "digits"]).stdout
    )


def test_a_run_takes_the_profile_that_comes_with_the_package(tmp_path):
    words = ["run", "digits", "--method", "ssd", "--profile", "tuned", "--device", "cpu", "--out", str(tmp_path / "r")]
    assert CliRunner().invoke(app, words).exit_code == 0
    config = configuration(tmp_path / "r")
    assert config["profile"] == "tuned"
    assert config["settings"] == find_benchmark("digits").settings["ssd"]["tuned"]


def test_the_best_settings_are_a_profile_of_the_benchmark(tuned):
    best = json.loads((tuned / "best.json").read_text())
    benchmark = with_tuned(tiny(), tuned)
    method = benchmark.method("ga")
    picked = method.configure(benchmark.settings_for(method, "tuned"), profile="tuned")
    assert picked.to_dict() == best["methods"]["ga"]["settings"]
    assert benchmark.tuned["tuned"]["provenance"] == best["provenance"]
    cells = plan(["original", "ga"], seeds=1, profiles=["tuned"], benchmark=benchmark)
    assert [cell.name for cell in cells] == ["original.seed-0", "ga.tuned.seed-0"]
    with pytest.raises(UsageError, match="ft has no profile tuned and would run untuned beside tuned methods"):
        plan(["original", "ga", "ft"], seeds=1, profiles=["tuned"], benchmark=benchmark)
    both = plan(["ga", "ft"], seeds=1, profiles=["tuned", "official"], benchmark=benchmark)
    assert [cell.name for cell in both if cell.method == "ft"] == ["ft.seed-0"]
    with pytest.raises(UsageError, match="--tuned"):
        plan(["ga"], seeds=1, profiles=["tuned"], benchmark=tiny())


def test_a_method_that_was_not_tuned_has_no_tuned_profile_of_another_tuning(tuned):
    best = json.loads((tuned / "best.json").read_text())
    untold = next(name for name in ("ft", "ssd", "scrub") if name not in best["methods"])
    earlier = {"default": {"epochs": 2}, "tuned": {"epochs": 3}}
    benchmark = with_tuned(dataclasses.replace(tiny(), settings={"ga": earlier, untold: earlier}), tuned)
    assert benchmark.settings[untold] == {"default": {"epochs": 2}}
    assert benchmark.settings["ga"]["tuned"] == best["methods"]["ga"]["settings"]


def test_a_profile_of_another_benchmark_is_refused_but_not_of_another_class(tuned, tmp_path):
    other_class = dataclasses.replace(tiny(forget="b"), only_split=("forget",))
    assert "tuned" in with_tuned(other_class, tuned).tuned
    with pytest.raises(UsageError, match="was tuned on tiny, not on tiny size=32"):
        with_tuned(tiny(size=32), tuned)
    with pytest.raises(UsageError, match="was tuned on tiny, not on digits"):
        find_benchmark("digits", tuned=tuned)
    with pytest.raises(UsageError, match="the same number of trials for every method"):
        with_tuned(tiny(), tmp_path)
    (tmp_path / "best.json").write_text(json.dumps({"format": "unweave-tuned", "schema": 1, "benchmark": "tiny"}))
    with pytest.raises(UsageError, match="lacks the entry 'options'"):
        with_tuned(tiny(), tmp_path)


def test_settings_carry_over_between_sizes_that_are_alike(tuned):
    for size in (64, 224):
        assert "tuned" in with_tuned(dataclasses.replace(tiny(size=size), alike={"size": (64, 224)}), tuned).tuned
    with pytest.raises(UsageError, match="not on tiny size=32"):
        with_tuned(dataclasses.replace(tiny(size=32), alike={"size": (64, 224)}), tuned)
    carried = {size: find_benchmark("cifar100-resnet18", options={"size": size}).tuned for size in (224, 112, 64, 32)}
    assert carried[224] == carried[112] == carried[64]
    assert carried[64]["tuned"]["options"] == {"forget": "tiger", "size": 64}
    assert not carried[32]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_profile_that_comes_with_the_package_fits_its_methods_and_says_where_it_is_from(name):
    benchmark = find_benchmark(name)
    assert name != "digits" or "tuned" in benchmark.tuned
    for profile, about in benchmark.tuned.items():
        tuned = set(ON_ANYTHING) - {"original", "retrain", "adaptive"}  # these profiles are older than adaptive
        for method in map(benchmark.method, tuned):
            values = benchmark.settings_for(method, profile)
            assert method.configure(values, profile=profile).to_dict() == values  # later defaults do not change it
        for run in about["provenance"]["runs"]:
            assert not run["commit"].endswith("+")


def test_a_method_that_was_only_asked_for_takes_nothing_away(tmp_path):
    tune(SOURCE, tmp_path / "t", methods=["ga"], trials=1, device="cpu")
    before = json.loads((tmp_path / "t" / "best.json").read_text())["methods"]
    tune(SOURCE, tmp_path / "t", methods=["ssd"], trials=2, device="cpu", time_limit=0.0)
    assert json.loads((tmp_path / "t" / "best.json").read_text())["methods"] == before
