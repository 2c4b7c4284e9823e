"""Tasks of lm-eval on a saved model, with a task and data that are made up here."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from tests.helpers import synthetic
from unweave.cli import app

TASK = """
task: towns
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on a language model, and the folder of its data."""
    data = tmp_path_factory.mktemp("data")
    synthetic.tofu(data)
    out = data / "run"
    words = ["run", "tofu-authors", "--small", "--method", "grad-diff", "--data", str(data), "--device", "cpu"]
    done = CliRunner().invoke(app.app, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out, data


def evaluated(run, *words):
    out, data = run
    words = ["evaluate", str(out), "--data", str(data), "--device", "cpu", "--ask", "reference", *words]
    return CliRunner().invoke(app.app, words)


def test_a_task_of_ones_own_is_measured_beside_the_scores(run, tmp_path):
    pytest.importorskip("lm_eval")
    _, data = run
    rows = [json.loads(line) for line in (data / "tofu" / "forget10_perturbed.json").read_text().splitlines()[-40:]]
    content = [
        {"question": row["question"], "choices": [row["answer"], *row["perturbed_answer"]], "answer": 0} for row in rows
    ]
    (tmp_path / "towns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    (tmp_path / "towns.yaml").write_text(TASK.replace("DATA", str(tmp_path / "towns.jsonl")))
    words = ["--lm-eval", "towns", "--lm-eval-folder", str(tmp_path)]
    done = evaluated(run, *words, "--lm-eval-limit", "20", "--json")
    assert done.exit_code == 0, done.output
    scores = json.loads(done.stdout.splitlines()[-1])
    (found,) = [one for one in scores["metrics"] if one["split"] == "lm-eval"]
    assert (found["subset"], found["metric"], found["better"]) == ("towns", "acc", "higher")
    assert 0 <= found["value"] <= 1
    assert found["value"] * 20 == pytest.approx(round(found["value"] * 20))
    assert found["low"] <= found["value"] <= found["high"]
    assert scores["train"]["forget"]["samples"] == 20  # the usual scores stand beside
    done = evaluated(run, *words)
    assert "towns" in done.stdout
    done = evaluated(run, "--lm-eval", "no-such-task")
    assert "lm-eval has no task 'no-such-task'. `lm-eval ls tasks` lists them" in str(done.exception)


def test_without_lm_eval_a_sentence_says_how_to_install_it(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    done = evaluated(run, "--lm-eval", "hellaswag")
    assert "--lm-eval needs the package lm-eval: pip install 'unweave[lm-eval]'" in str(done.exception)


def test_it_is_for_language_models(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", sys)
    words = ["run", "digits", "--small", "--method", "ft", "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert CliRunner().invoke(app.app, words).exit_code == 0
    done = CliRunner().invoke(app.app, ["evaluate", str(tmp_path / "run"), "--lm-eval", "hellaswag"])
    assert "--lm-eval is for language models whose tokenizer is known" in str(done.exception)
