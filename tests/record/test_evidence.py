"""Checks of what a record claims: its numbers, the files beside it, and what earlier requests forgot."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
import warnings

import pytest

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.records import FAST, Run
from unweave import Compute, Request, Split, UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.record import check_chain, check_scores, read_exact, read_record, with_exact


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("evidence"))


def exactly(folder):
    """Return the record of a folder with its exact scores."""
    return with_exact(read_record(folder / "record.json"), read_exact(folder / "exact-scores.json"))


def forged(record, change):
    record = copy.deepcopy(record)
    change(record)
    return record


def of_metric(name, entry, value):
    def change(record):
        for row in record["scores"]["metrics"]:
            if (row["split"], row["subset"], row["metric"]) == ("train", "forget", name):
                row[entry] = value

    return change


def no_forget_accuracy(record):
    rows = record["scores"]["metrics"]
    record["scores"]["metrics"] = [row for row in rows if (row["metric"], row["subset"]) != ("accuracy", "forget")]


def set_(value, *path):
    def change(record):
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_metric("accuracy", "value", 0.987), r"train forget accuracy \(value\)"),
        (of_metric("accuracy", "high", 0.001), r"train forget accuracy \(high\)"),
        (of_metric("accuracy", "before", 0.987), r"train forget accuracy \(before\)"),
        (no_forget_accuracy, "missing in the record"),
        (set_(0.987, "scores", "train", "remote", "accuracy"), "train remote accuracy"),
        (set_({"before": 1.0, "after": 0.987}, "drift", -1, "test", "adjacent"), r"test adjacent accuracy \(drift\)"),
    ],
)
def test_every_number_that_is_shown_is_compared(run, change, words):
    scores = run.result.scores
    assert check_scores(run.whole, scores).holds
    found = check_scores(forged(run.whole, change), scores)
    assert found.holds is False
    assert re.search(words, found.words), found.words


def test_a_bound_that_nobody_computed_is_found(tmp_path):
    made = Run(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common = {"guard": None, "epochs": 20, "target": 4.0, "budget": 0.05, "compute": Compute("cpu")}
        result = unlearn_on_record(
            made.model, made.split, "unweave", out=tmp_path / "two", request={"id": "b"}, **common
        )
    record = exactly(tmp_path / "two")
    assert result.scores.metric("forget_bound", "train", "forget").value == record["certificate"]["bound"]
    assert check_scores(record, result.scores).holds
    found = check_scores(forged(record, set_(1e-4, "certificate", "bound")), result.scores)
    assert (found.holds, "the certificate's bound" in found.words) == (False, True)


def test_what_an_earlier_request_forgot_is_not_learned_again(run, tmp_path):
    second = Split(run.data, forget=range(40, 50), adjacent=range(50, 60))
    request = Request(id="2031-18", previous=run.file)
    common = {"request": request, **FAST}
    with pytest.raises(
        UsageError, match=r"keeps 8 samples that request '2031-17' or an earlier one made the model forget"
    ):
        unlearn_on_record(run.result.model, second, "two-stage", profile="released", out=tmp_path / "x", **common)
    with pytest.raises(UsageError, match=r"test split keeps 8 samples of what request '2031-17' .* test=test.after"):
        unlearn_on_record(
            run.result.model,
            second.after(run.split),
            "two-stage",
            profile="released",
            out=tmp_path / "x",
            test=second,
            **common,
        )
    assert list(tmp_path.iterdir()) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tested = second.after(run.split)
        unlearn_on_record(
            run.result.model, tested, "two-stage", profile="released", out=tmp_path / "x", test=tested, **common
        )
    record = json.loads((tmp_path / "x" / "record.json").read_text())
    assert record["scores"]["test"]["forgotten"]["samples"] == 8
    assert [check.holds for check in check_chain(record, [run.record], run.public)] == [True]
    # If the forgotten samples were deleted from the data, positions mean nothing.
    fewer = Split(tuple(column[8:] for column in run.data), forget=range(32, 42), adjacent=range(42, 52))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unlearn_on_record(run.result.model, fewer, "two-stage", profile="released", out=tmp_path / "y", **common)


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    from unweave.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", *map(str, words)])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, " ".join(shown.err.split())

    return call


QUICK = ["--no-guard", "--device", "cpu", "--set", "stage1_epochs=1", "--set", "stage2_epochs=1"]


def test_the_test_data_of_a_second_request_lack_what_the_first_forgot(digits, command, monkeypatch, tmp_path):
    _, task, original = digits
    monkeypatch.setattr(Benchmark, "train", lambda *arguments, **more: original)
    assert command("run", "digits", "--request-id", "1", "--out", "one", *QUICK)[0] == 0
    again = command("run", "digits", "--after", "one", "--request-id", "2", "--out", "two", *QUICK)
    assert (again[0], "Choose what to forget now" in again[2]) == (2, True)
    done = command(
        "run", "digits", "--after", "one", "--option", "forget=4", "--request-id", "2", "--out", "two", *QUICK
    )
    assert done[0] == 0, done[2]
    test = json.loads((tmp_path / "two" / "record.json").read_text())["scores"]["test"]
    assert test["forgotten"]["samples"] == len(task.test.forget)
    assert test["adjacent"]["samples"] + test["forget"]["samples"] == len(task.test.adjacent)
    checked = command("record", "verify", "two", "--previous", "one", "--recompute", "--device", "cpu")
    assert checked[0] == 0, checked[1]


def test_what_lies_beside_a_record_is_checked_with_it(run, command, tmp_path):
    whole = run.folder / "one"
    code, out, _ = command("record", "verify", whole)
    assert code == 0
    for words in ("model after: matches", "run.json: agrees with the record", "scores.json: agrees with the record"):
        assert f"ok    {words}" in out
    for name, other in (("model.safetensors", b"garbage"), ("scores.json", b"{}"), ("run.json", b"{}")):
        shutil.copytree(whole, tmp_path / name)
        (tmp_path / name / name).write_bytes(other)
        assert command("record", "verify", tmp_path / name)[0] == 1
        (tmp_path / name / name).unlink()
        code, out, _ = command("record", "verify", tmp_path / name)
        assert code == 0
        assert ("not checked: there are no weights beside the record" in out) == (name == "model.safetensors")


def test_a_command_resumes_with_the_original_that_it_trained(digits, command, monkeypatch, tmp_path):
    benchmark, _, original = digits
    trained = iter([original, benchmark.initial(7)])  # training again would give another model
    monkeypatch.setattr(Benchmark, "train", lambda *arguments, **more: next(trained))
    words = ["run", "digits", "--out", "deep/run", "--checkpoint-steps", "1", *QUICK]
    with monkeypatch.context() as patch:
        from unweave.methods.two_stage import Stage1

        step = Stage1.step
        patch.setattr(Stage1, "step", lambda phase, number: step(phase, number) if number < 3 else interrupt())
        assert command(*words)[0] == 130
    assert (tmp_path / "deep" / "run.original.safetensors").exists()
    done = command(*words, "--resume")
    assert done[0] == 0, done[2]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["run"]


def interrupt():
    raise KeyboardInterrupt


def test_a_strangers_folder_brings_settings_and_nothing_else(digits, command, monkeypatch, tmp_path):
    monkeypatch.setattr(Benchmark, "train", lambda *arguments, **more: digits[2])
    assert command("run", "digits", "--method", "ga", "--out", "run", "--no-guard", "--device", "cpu")[0] == 0
    config = configuration(tmp_path / "run")
    for name in ("out", "seed", "track_folder"):
        write_configuration(tmp_path / "run", config | {"settings": config["settings"] | {name: "elsewhere"}})
        code, _, err = command("audit", "run", "--shadows", "4", "--device", "cpu")
        assert (code, f"There is no setting '{name}'" in err) == (2, True)
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_computed_in_bfloat16_may_be_rounded_otherwise(run):
    scores = run.result.scores
    value = scores.metric("loss", "train", "forget").value
    for precision, holds in (("float32", False), ("bfloat16", True)):
        record = forged(run.whole, of_metric("loss", "value", 1.01 * value))
        record["scores"]["precision"] = precision
        assert check_scores(record, scores).holds is holds
