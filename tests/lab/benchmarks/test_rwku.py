"""The benchmark with real people, on data of its form about people that do not exist."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.helpers import synthetic
from tests.helpers.texts import transformers
from unweave.cli import app
from unweave.errors import UsageError
from unweave.lab.benchmarks import find_benchmark, tofu_data
from unweave.lab.benchmarks.rwku import people_of
from unweave.lab.study import plan, run_study
from unweave.lab.tuning import carve


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.rwku(folder, people=11)
    return folder


@pytest.fixture(scope="module")
def knows(tmp_path_factory):
    """A folder with a model, whose head is tied to its embedding, and its tokenizer."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = tofu_data.word_tokenizer([*synthetic.PLACES, "Tell me about Fill in the blank : ? . ___ Person1 Known"])
    tokenizer.save_pretrained(folder)
    config = tofu_data.small_model(len(tokenizer)).config
    config.tie_word_embeddings = True
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def test_texts_are_forgotten_and_nothing_in_a_test_is_trained_on(data, knows):
    task = find_benchmark("rwku", data=data, options={"model": knows, "people": "4"}).load()
    assert [len(task.train[name]) for name in ("forget", "adjacent", "remote")] == [8, 4, 12]
    assert [len(task.test[name]) for name in ("forget", "adjacent", "remote")] == [7, 4, 12]
    assert {name: len(rows) for name, rows in task.questions.items()} == {
        "forget": 6,
        "adversarial": 1,
        "adjacent": 4,
        "remote": 12,
    }
    learned = {row["question"] for row in task.rows}
    assert not learned & {row["question"] for rows in task.questions.values() for row in rows}
    assert "Fill in the blank: Person1 Known lived in ___ in 1900." in {
        row["question"] for row in task.questions["forget"]
    }


@pytest.mark.parametrize("person", ["3_Person3_Known", "3", "Person3 Known"])
def test_a_person_is_named_by_folder_number_or_name(data, knows, person):
    task = find_benchmark("rwku", data=data, options={"model": knows, "person": person}).load()
    assert task.rows[0] == {
        "question": "Tell me about Person3 Known.",
        "answer": f"Person3 Known lived in {synthetic.PLACES[3]} in 1900.",
    }
    other = carve(task, seed=0, texts=True)  # tuning forgets the next person
    assert other.rows[0]["question"] == "Tell me about Person4 Known."


def test_people_come_in_the_order_of_their_numbers(data):
    assert [folder.name.split("_")[0] for folder in people_of(str(data))] == [str(n) for n in range(1, 12)]


def test_the_given_model_is_the_original_and_none_is_trained(data, knows, tmp_path):
    benchmark = find_benchmark("rwku", data=data, options={"model": knows, "people": "2", "asked": "2"})
    assert not benchmark.retrains
    store = run_study(benchmark, plan(["original", "grad-diff"], seeds=1), tmp_path / "s", device="cpu")
    assert {labels["method"] for labels in store.finished().values()} == {"original", "grad-diff"}
    scores = json.loads((store.cells / "grad-diff.seed-0" / "answer_scores.json").read_text())
    found = {(one["metric"], one["subset"]) for one in scores["metrics"]}
    assert {("rouge", "forget"), ("rouge", "adversarial"), ("rouge", "adjacent"), ("probability", "remote")} <= found


def test_a_small_run_trains_forgets_and_answers(data, tmp_path):
    words = ["run", "rwku", "--small", "--method", "npo", "--data", str(data), "--device", "cpu"]
    done = CliRunner().invoke(app.app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "answer_scores.json").exists()


def test_what_is_missing_is_said_in_a_sentence(data, knows, tmp_path):
    def load(folder, **options):
        return find_benchmark("rwku", data=folder, options={"model": knows, **options}).load()

    with pytest.raises(UsageError, match=r"^No people of RWKU under .*: expected folders such as .*1_Stephen_King\."):
        load(tmp_path)
    with pytest.raises(UsageError, match=r"RWKU has nobody called 'Nobody'\. Give a folder's name, such as 1_Pers"):
        load(data, person="Nobody")
    with pytest.raises(UsageError, match="needs a causal language model"):
        load(data, model="")
    synthetic.rwku(tmp_path, people=2)
    with pytest.raises(UsageError, match="has 2 people, but at least 3 are needed"):
        load(tmp_path)
    synthetic.rwku(tmp_path / "more", people=3)
    (tmp_path / "more" / "RWKU" / "1_Person1_Known" / "passage.json").write_text('[{"subject": "x"}]')
    with pytest.raises(UsageError, match=r"Entry 0 of .*passage\.json must be an object with the texts subject, text"):
        load(tmp_path / "more")
    (tmp_path / "more" / "RWKU" / "1_Person1_Known" / "passage.json").unlink()
    with pytest.raises(UsageError, match=r"passage\.json is missing\. Use a complete copy of RWKU\."):
        load(tmp_path / "more")
