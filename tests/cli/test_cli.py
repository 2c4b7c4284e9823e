from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from torch import nn

import unweave
from tests.helpers.folders import configuration
from unweave.cli import main


def command(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "unweave", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )


QUICK = ["--device", "cpu", "--set", "stage1_epochs=1", "--set", "stage2_epochs=1"]


def test_run_writes_a_folder_and_prints_scores(tmp_path):
    done = command(
        "run",
        "digits",
        "--method",
        "two-stage",
        "--seed",
        "1",
        *QUICK,
        "--out",
        "one",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    stored = json.loads((tmp_path / "one" / "scores.json").read_text())
    assert printed["train"] == stored["train"]
    config = configuration(tmp_path / "one")
    assert (config["benchmark"], config["seed"], config["unweave"]) == ("digits", 1, unweave.__version__)
    again = command("run", "digits", *QUICK, "--out", "one", cwd=tmp_path)
    assert again.returncode == 2
    assert "already exists" in again.stderr


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
def test_mistakes_get_one_sentence_and_an_exit_code(words, code, message, tmp_path):
    done = command(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_methods_and_benchmarks_are_listed():
    listed = json.loads(command("methods", "--json").stdout)
    assert {"two-stage", "pgd", "ft", "ga", "original"} <= {method["name"] for method in listed}
    one = command("methods", "two-stage").stdout
    assert "alpha = 0.5  (float, at least 0 and at most 1)" in one
    assert "profile paper: mean_sign=1" in one
    assert json.loads(command("benchmarks", "digits", "--json").stdout)["recipe"]["optimizer"] == "adam"
    assert "digits" in command("benchmarks").stdout
    assert command("--version").stdout.strip() == f"unweave {unweave.__version__}"


def test_the_demo_shows_and_writes(tmp_path):
    for _ in range(2):  # a second demo replaces the first
        done = command("demo", "--seeds", "1", "--device", "cpu", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for word in (
        "original",
        "two-stage",
        "plain PGD",
        "fine-tuning",
        "gradient ascent",
        "nines",
        "Entanglement",
    ):
        assert word in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    folder = tmp_path / "unweave-demo"
    assert sorted(path.name for path in folder.iterdir()) == [
        "demo.json",
        "forget-losses.png",
        "forget-losses.svg",
    ]
    assert (folder / "forget-losses.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["unweave-demo"]


def test_the_demo_does_not_overwrite_what_is_not_its_own(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    done = command("demo", "--out", "mine", cwd=tmp_path)
    assert done.returncode == 2
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


def test_a_saved_model_is_evaluated_and_audited(tmp_path):
    command("run", "digits", *QUICK, "--out", "one", cwd=tmp_path)
    found = command("evaluate", "one", "--retrain", "1", "--device", "cpu", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    scores = json.loads(found.stdout)
    stored = json.loads((tmp_path / "one" / "scores.json").read_text())
    assert scores["train"]["forget"]["accuracy"] == stored["train"]["forget"]["accuracy"]
    assert 0 < scores["model"]["tow"] <= 1
    words = ["one/model.safetensors", "--benchmark", "digits", "--method", "ga", "--shadows", "4", "--retrain", "1"]
    audited = command("audit", *words, "--out", "shadows", "--device", "cpu", cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    for word in ("mia_ulira_auc", "relearn_steps", "probe_accuracy", "erase:", "as if never trained:"):
        assert word in audited.stdout
    assert len(list((tmp_path / "shadows").glob("*.safetensors"))) == 4
    missing = command("evaluate", "nowhere.safetensors", "--benchmark", "digits", cwd=tmp_path)
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
