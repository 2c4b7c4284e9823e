from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from torch import nn

import unweave
from tests.helpers.folders import configuration
from unweave.cli import main

QUICK = ["--device", "cpu", "--set", "stage1_epochs=1", "--set", "stage2_epochs=1"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder in which a run was written to ``one``, by a process of its own, and what that printed."""
    folder = tmp_path_factory.mktemp("run")
    words = ["run", "digits", "--method", "two-stage", "--seed", "1", *QUICK, "--out", "one", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "unweave", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_run_writes_a_folder_and_prints_scores(written, shell, monkeypatch):
    folder, printed = written
    stored = json.loads((folder / "one" / "scores.json").read_text())
    assert json.loads(printed)["train"] == stored["train"]
    config = configuration(folder / "one")
    assert (config["benchmark"], config["seed"], config["unweave"]) == ("digits", 1, unweave.__version__)
    monkeypatch.chdir(folder)
    again = shell("run", "digits", *QUICK, "--out", "one")
    assert again.code == 2
    assert "already exists" in again.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "digits", "--method", "two-stge", "--out", "x"], 2, "Did you mean 'two-stage'"),
        (["run", "digts", "--out", "x"], 2, "Did you mean 'digits'"),
        (["run", "digits", "--set", "alpha=2", "--out", "x"], 2, "at most 1"),
        (["run", "digits", "--set", "alhpa=1", "--out", "x"], 2, "Did you mean 'alpha'"),
        (["run", "digits", "--set", "alpha", "--out", "x"], 2, "KEY=VALUE"),
        (["run", "digits", "--profile", "papr", "--out", "x"], 2, "Did you mean 'paper'"),
        (["run", "digits", "--precision", "float99", "--out", "x"], 2, "no precision"),
        (["run", "digits", "--device", "meta", "--out", "x"], 2, "'meta' cannot be used here: it holds no values."),
        (["run", "digits", "--device", "tpu:9", "--out", "x"], 2, "cannot be used here"),
        (["study", "digits", "--time-limit", "-1", "--out", "x"], 2, "Invalid value for '--time-limit'"),
        (["tune", "digits", "--time-limit", "-1", "--out", "x"], 2, "Invalid value for '--time-limit'"),
        (["run", "digits"], 2, "--out"),
        (["methods", "nope"], 2, "no method 'nope'"),
        (["benchmarks", "nope"], 2, "no benchmark 'nope'"),
        (["fly"], 2, "fly"),
        (
            [
                "run",
                "digits",
                "--method",
                "ga",
                "--set",
                "learning_rate=1e30",
                "--set",
                "epochs=20",
                "--out",
                "x",
            ],
            1,
            "in step",
        ),
    ],
)
def test_mistakes_get_one_sentence_and_an_exit_code(words, code, message, tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = shell(*words)
    assert done.code == code, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "x").exists()


def test_methods_and_benchmarks_are_listed(shell):
    listed = json.loads(shell("methods", "--json").out)
    assert {"two-stage", "pgd", "ft", "ga", "original"} <= {method["name"] for method in listed}
    one = shell("methods", "two-stage").out
    assert "alpha = 0.5  (float, at least 0 and at most 1)" in one
    assert "profile paper: mean_sign=1" in one
    assert json.loads(shell("benchmarks", "digits", "--json").out)["recipe"]["optimizer"] == "adam"
    assert "digits" in shell("benchmarks").out
    assert shell("--version").out.strip() == f"unweave {unweave.__version__}"


def test_the_demo_shows_and_writes(tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "unweave-demo"
    folder.mkdir()
    for name in ("demo.json", "forget-losses.png", "of-another-version.txt"):  # the demo replaces an earlier one
        (folder / name).write_text("{}")
    done = shell("demo", "--seeds", "1", "--device", "cpu")
    assert done.code == 0, done.err
    for word in (
        "original",
        "two-stage",
        "plain PGD",
        "fine-tuning",
        "gradient ascent",
        "nines",
        "Entanglement",
    ):
        assert word in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert sorted(path.name for path in folder.iterdir()) == [
        "demo.json",
        "forget-losses.png",
        "forget-losses.svg",
    ]
    assert (folder / "forget-losses.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["unweave-demo"]


def test_the_demo_does_not_overwrite_what_is_not_its_own(tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    assert shell("demo", "--out", "mine").code == 2
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "stopped_in", "message"),
    [
        (["demo", "--out", "x"], "unweave.lab.run_demo", "Stopped."),
        (["evaluate", "x"], "unweave.lab.audit.load_subject", "Stopped."),
        (["audit", "x"], "unweave.lab.audit.load_subject", "Stopped."),
        (["run", "digits", "--out", "x"], "unweave.lab.benchmarks.Benchmark.train", "Stopped."),
        (
            ["run", "digits", "--out", "x", "--device", "cpu"],
            "unweave.cli.benchmark_run.unlearn",
            "Stopped. Run the same command with --resume to resume.",
        ),
    ],
)
def test_a_command_that_is_stopped_says_so(words, stopped_in, message, tmp_path, monkeypatch, capsys):
    def interrupt(*_, **more):
        if more.get("out"):
            Path("x.unfinished").mkdir()
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unweave.lab.benchmarks.Benchmark.train", lambda *_, **__: nn.Linear(1, 1))
    monkeypatch.setattr(stopped_in, interrupt)
    monkeypatch.setattr(sys, "argv", ["unweave", *words])
    with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
        main()
    assert (ended.value.code, capsys.readouterr().err.strip()) == (130, message)


def test_a_saved_model_is_evaluated_and_audited(written, tmp_path, shell, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written[0] / "one", "one")
    found = shell("evaluate", "one", "--retrain", "1", "--device", "cpu", "--json")
    assert found.code == 0, found.err
    scores = json.loads(found.out)
    stored = json.loads((tmp_path / "one" / "scores.json").read_text())
    assert scores["train"]["forget"]["accuracy"] == stored["train"]["forget"]["accuracy"]
    assert 0 < scores["model"]["tow"] <= 1
    words = ["one/model.safetensors", "--benchmark", "digits", "--method", "ga", "--shadows", "4", "--retrain", "1"]
    audited = shell("audit", *words, "--out", "shadows", "--device", "cpu")
    assert audited.code == 0, audited.err
    for word in ("mia_ulira_auc", "relearn_steps", "probe_accuracy", "erase:", "as if never trained:"):
        assert word in audited.out
    assert len(list((tmp_path / "shadows").glob("*.safetensors"))) == 4
    missing = shell("evaluate", "nowhere.safetensors", "--benchmark", "digits")
    assert missing.code == 2
    assert "Traceback" not in missing.err
