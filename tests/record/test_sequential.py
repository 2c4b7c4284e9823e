"""Requests in a row: what was forgotten stays forgotten, and the records show what it cost."""

from __future__ import annotations

import copy
import json
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.tensors import same, weights
from unweave import Compute, Split, UsageError, evaluate, unlearn
from unweave.engine import CheckpointFolder, Workbench, run_phases
from unweave.evaluation import Metric, predict
from unweave.evaluation.goals import goals
from unweave.lab.benchmarks import Benchmark
from unweave.maths import gram_matrix
from unweave.methods import find_method
from unweave.methods.two_stage import Stage1, Stage2, TwoStage

CPU = torch.device("cpu")


@pytest.fixture
def second(data, split):
    """A request for ten of the remote samples, after the request of ``split``."""
    return Split(data, forget=range(40, 50), adjacent=range(50, 60), remote=range(40)).after(split)


def test_what_was_forgotten_is_no_longer_kept(data, split, second):
    assert second.forgotten.tolist() == split.forget.tolist()
    assert not set(second.remote) & set(split.forget)
    assert str(second) == "Split of 60 samples: 10 forget, 10 adjacent, 32 remote, 8 forgotten"
    assert (second.names[-1], second.to_forget) == ("forgotten", ("forget", "forgotten"))
    assert split.to_forget == ("forget",)
    third = Split(data, forget=[0, 20], adjacent=[21, 22], remote=[23, 24, 41]).after(second, split)
    assert third.forget.tolist() == [0, 20]  # sample 0 was asked for again, so it belongs to the request
    assert third.forgotten.tolist() == [*range(1, 8), *range(40, 50)]
    assert third.with_noise(remote_to_adjacent=0.5).forgotten.tolist() == third.forgotten.tolist()
    assert Split(data, forget=[0], adjacent=[1], forgotten=[2]).remote.tolist() == list(range(3, 60))


def test_it_is_part_of_the_file_and_of_the_hash(data, split, second, tmp_path):
    second.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json", data) == second
    bare = Split(data, second.forget, second.adjacent, second.remote)
    assert bare.hash != second.hash
    assert split.after() == split
    with pytest.raises(UsageError, match="both remote and forgotten"):
        Split(data, forget=[0], adjacent=[1], remote=[2], forgotten=[2])
    with pytest.raises(UsageError, match="must be made from the same data set"):
        split.after(Split((data[0][:9], data[1][:9]), forget=[0], adjacent=[1]))


class Forbidden(Dataset):
    def __init__(self, data, rows):
        self.data, self.rows = data, set(rows)

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, index):
        assert index not in self.rows, "a forgotten sample was read"
        return self.data[0][index], self.data[1][index]


HOLDING = ("two-stage", "pgd", "unweave", "adaptive")  # they read what was forgotten, to keep it forgotten


@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if name not in HOLDING])
def test_no_baseline_trains_on_what_was_forgotten(data, model, second, name):
    values = {"batch_size": 8} if name == "ssd" else {} if name == "original" else {"epochs": 1, "batch_size": 8}
    parts = [second.forget, second.adjacent, second.remote]
    guarded = Split(Forbidden(data, range(8)), *parts, forgotten=second.forgotten)
    unlearn_with(model, guarded, name, initial=lambda: copy.deepcopy(model), compute=Compute("cpu"), **values)


# The two-stage method


def bench_for(split, seed=0):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    return Workbench(model.eval(), split, device=CPU, seed=seed)


def test_every_step_of_stage_2_is_orthogonal_to_what_was_forgotten(second):
    bench, settings = bench_for(second), TwoStage(stage2_adjacent_batch=4, stage2_learning_rate=1e-2)
    phase = Stage2(settings)
    phase.prepare(bench)
    phase.begin()
    for number in range(5):
        phase.logged = {}
        forgotten = bench.gradient(phase._protected("forgotten", phase.to_forget["forgotten"].several(number, 10)))
        logged = phase.step(number)
        gram = gram_matrix([phase.velocity, forgotten])
        assert gram[0, 1].abs() <= 1e-5 * (gram[0, 0] * gram[1, 1]).sqrt()
    assert {"forgotten_loss", "forgotten_squared_wasserstein"} <= set(logged)


def test_stage_1_notices_a_relapse_and_nothing_else(second):
    bench = bench_for(second)
    phase = Stage1(TwoStage(stage1_forget_batch=8, stage1_remote_batch=8))
    phase.prepare(bench)
    phase.begin()
    relapse, _ = phase._relapse(phase.forgotten, 0)
    assert relapse < 1e-6
    with torch.no_grad():  # move towards the labels of what was forgotten (all 0), then away from them
        bench.model[-1].bias[0] += 1
        better = bench.losses_in_order(phase.forgotten)
        assert torch.allclose(phase._relapse(phase.forgotten, 0)[0], (phase.settled - better).mean())
        bench.model[-1].bias[0] -= 3
    assert phase._relapse(phase.forgotten, 0)[0] == 0
    phase.settled.fill_(20)
    phase.step(0)
    assert phase.relapse_multiplier > 0


@pytest.mark.parametrize("stop", [2, 7])
def test_a_stopped_second_request_resumes_exactly(second, tmp_path, stop):
    method = find_method("two-stage")
    rates = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2}
    sizes = {"stage1_remote_batch": 8, "stage1_forget_batch": 4, "stage2_adjacent_batch": 4}
    settings = method.configure({**rates, **sizes, "normalisation": "train"})
    whole = bench_for(second)
    history = run_phases(whole, settings.phases())
    phases = list(settings.phases())
    count = iter(range(99))
    for phase in phases:

        def step(number, taken=phase.step):
            if next(count) == stop:
                raise KeyboardInterrupt
            return taken(number)

        phase.step = step
    with pytest.raises(KeyboardInterrupt):
        run_phases(bench_for(second), phases, checkpoints=CheckpointFolder(tmp_path, every_seconds=0))
    again = bench_for(second)
    resumed = run_phases(again, settings.phases(), checkpoints=CheckpointFolder(tmp_path), resume=True)
    assert same(weights(whole.model), weights(again.model))
    assert history.rows == resumed.rows


def known(model, task, rows):
    return float(predict(model, task.train.samples, torch.as_tensor(rows), device="cpu").correct.double().mean())


def test_forgetting_threes_does_not_bring_the_nines_back(digits):
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage2_epochs": 8}
    after_nines = unlearn(
        original, task.train, "two-stage", profile="released", compute=Compute("cpu"), **settings
    ).model
    assert known(after_nines, task, task.train.forget) <= 0.05
    threes = Split.by_class(task.train.samples.dataset, fine=np.array(task.fine), forget=3)
    parts = threes.after(task.train)
    carried = unlearn(
        after_nines, threes.after(task.train), "two-stage", profile="released", compute=Compute("cpu"), **settings
    )
    assert known(carried.model, task, task.train.forget) <= 0.05
    assert known(carried.model, task, parts.forget) <= 0.2
    assert known(carried.model, task, parts.adjacent) >= 0.9
    assert known(carried.model, task, parts.remote) >= 0.9
    # Leaving them out of training is not enough.
    bare = Split(task.train.samples, parts.forget, parts.adjacent, parts.remote)
    left_alone = unlearn(after_nines, bare, "two-stage", profile="released", compute=Compute("cpu"), **settings)
    assert known(left_alone.model, task, task.train.forget) >= 0.3


def test_the_default_method_keeps_forgotten_what_was_forgotten(digits):
    """Two requests, no settings."""
    _, task, original = digits
    first = unlearn(original, task.train, compute=Compute("cpu")).model
    threes = Split.by_class(task.train.samples.dataset, fine=np.array(task.fine), forget=3)
    parts = threes.after(task.train)
    second = unlearn(first, parts, compute=Compute("cpu")).model
    assert known(second, task, task.train.forget) <= 0.01
    assert known(second, task, parts.forget) <= 0.01
    assert known(second, task, parts.adjacent) >= 0.9
    assert known(second, task, parts.remote) >= 0.9


def test_scores_show_what_was_forgotten(model, second):
    scores = evaluate(model, second, compute=Compute("cpu"), original=model)
    assert scores["train"]["forgotten"]["samples"] == 8
    metric = scores.metric("accuracy", "train", "forgotten")
    assert (metric.better, metric.before) == ("lower", metric.value)
    assert "forgotten" in str(scores)
    found = {"forget": 0.0, "forgotten": 0.4, "adjacent": 0.9, "remote": 1.0}
    metrics = [
        Metric(metric="accuracy", value=value, better="lower", split="train", subset=subset)
        for subset, value in found.items()
    ]
    assert goals(metrics)[0].value == pytest.approx(0.6 * 0.9)
    assert goals(metrics)[0].worst == "40.0% of train forgotten samples are still recognised"


# The command line


def test_a_chain_on_the_command_line(digits, tmp_path, monkeypatch, capsys):
    from unweave.cli import main

    _, task, original = digits
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Benchmark, "train", lambda *arguments, **more: original)
    fine, test = np.array(task.fine), task.test
    Split.by_class(task.train.samples.dataset, fine=fine, forget=3).save("threes.json")
    Split(test.samples, range(5), range(5, 20), range(20, len(test.samples))).save("test-threes.json")

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", *words])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    quick = ["--no-guard", "--device", "cpu", "--set", "stage1_epochs=1", "--set", "stage2_epochs=1"]
    first = command("run", "digits", "--request-id", "1", "--out", "one", *quick)
    assert first[0] == 0, first[2]
    splits = ["--split", "threes.json", "--test-split", "test-threes.json"]
    done = command("run", "digits", "--after", "one", *splits, "--request-id", "2", "--out", "two", *quick)
    assert done[0] == 0, done[2]
    record = json.loads((tmp_path / "two" / "record.json").read_text())
    assert record["split"]["forgotten"] == len(task.train.forget)
    assert [row["id"] for row in record["drift"]] == ["1", "2"]
    checked = command(
        "record", "verify", "two", "--previous", "one", "--model", "two", "--recompute", "--device", "cpu"
    )
    assert checked[0] == 0, checked[1]
    for words in ("ok    chain to 1", "ok    split", "ok    forget samples", "ok    scores"):
        assert words in checked[1]
    third = command("run", "digits", "--after", "two", "--method", "ga", "--out", "three", *quick[:3])
    assert third[0] == 0, third[2]
    assert command("record", "page", "one", "two", "--out", "chain.html")[0] == 0
    assert "Drift over 2 requests" in (tmp_path / "chain.html").read_text()
    assert command("record", "page", "one", "--out", "chain.html")[0] == 2
    wrong = command("run", "digits", "--after", "three", "--out", "four", *quick)
    assert (wrong[0], "has no forget-proofs.json" in wrong[2]) == (2, True)
    lonely = command("run", "digits", "--request", "words", "--out", "four", *quick)
    assert (lonely[0], "--request-id" in lonely[2]) == (2, True)
