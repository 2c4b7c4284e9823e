"""A causal language model, prompts with answers and what to forget: from a shell and from Python."""

from __future__ import annotations

import json
import re

import pytest
import torch
import yaml

from tests.helpers.own_files import write_table
from tests.helpers.texts import (
    NAMES,
    TEMPLATE,
    llama,
    people,
    rows,
    tokenizer,
    transformers,
    write_language_checkpoint,
)
from unweave import Request, answers
from unweave.evaluation import features

pytestmark = pytest.mark.filterwarnings("ignore:Only .* adjacent samples were found")
QUICK = {"method": "ga", "settings": {"learning_rate": 1e-2, "epochs": 2}, "no_guard": True, "device": "cpu"}
GA = ["--method", "ga", "--set", "learning_rate=3e-2", "--set", "epochs=7", "--no-guard", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    write_language_checkpoint(folder / "ckpt")
    for name in ("qa.jsonl", "qa.csv", "qa.parquet"):
        write_table(folder / name, people())
    (folder / "ids.txt").write_text("q0\nq1\n")
    return folder


@pytest.fixture
def at_home(home, monkeypatch, tmp_path):
    """Work in a folder of its own that sees the files of the home."""
    for file in home.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request(home, **changes):
    given = {"model": str(home / "ckpt"), "train": str(home / "qa.jsonl"), "forget": str(home / "ids.txt")}
    return Request(**{**given, "template": TEMPLATE, **QUICK, **changes})


def logits(model):
    data = answers(rows(), tokenizer(), template=TEMPLATE)
    with torch.no_grad():
        return model(input_ids=data["input_ids"], attention_mask=data["attention_mask"]).logits


@pytest.mark.parametrize("file", ["qa.jsonl", "qa.csv", "qa.parquet"])
def test_rows_are_the_tokens_that_answers_makes(home, file):
    prepared = request(home, train=str(home / file), adjacent="person = 'ben'").prepare()
    assert prepared.split.forget.tolist() == [0, 1]
    assert prepared.split.adjacent.tolist() == [2, 3]
    expected = answers(rows(), tokenizer(), template=TEMPLATE)
    found = prepared.split.samples.read(torch.tensor([5, 0]))
    assert {name: values.tolist() for name, values in found.items()} == {
        name: values[[5, 0]].tolist() for name, values in expected.items()
    }
    assert torch.equal(prepared.split.samples.labels(), expected["labels"])


def test_a_line_break_may_be_typed_as_two_characters(home):
    found = request(home, template=r"{prompt}\n{answer}").find()
    assert found.train.roles.template == "{prompt}\n{answer}"
    assert request(home, template=None).find().train.roles.template == "Question: {prompt}\nAnswer: {answer}"


def test_adjacent_are_the_nearest_prompts_as_the_model_reads_them(home):
    prepared = request(home).prepare()
    found = features(prepared.model, prepared.split.samples, torch.arange(24), device="cpu")
    assert found.shape == (24, 32)
    distances = torch.cdist(found[:2], found[2:])
    assert set(prepared.split.adjacent.tolist()) <= {
        2 + int(place) for place in distances.topk(20, largest=False)[1][0]
    }
    narrow = {name: values[:, :9] for name, values in prepared.split.samples.read(torch.arange(2)).items()}
    from unweave.data import Samples

    assert torch.allclose(
        features(prepared.model, Samples(narrow), torch.arange(2), device="cpu"), found[:2], atol=1e-5
    )


def test_from_a_shell_to_a_model_that_transformers_opens(at_home, shell):
    words = ["--model", "ckpt", "--train", "qa.jsonl", "--prompt", "question", "--answer", "answer"]
    words += ["--template", TEMPLATE, "--forget", "person = 'ada'", "--test", "qa.csv", "--request-id", "17"]
    done = shell("unlearn", *words, *GA, "--out", "run", "--show-samples")
    assert done.code == 0, done.err
    assert "answers reproduced in %" in done.out
    assert re.search(r"train forget +2 +100\.0 +0\.0", done.out)
    model = transformers.AutoModelForCausalLM.from_pretrained("run/model").eval()
    assert transformers.AutoTokenizer.from_pretrained("run/model")("ada lives").input_ids == [3, 45]
    before = transformers.AutoModelForCausalLM.from_pretrained("ckpt").eval()
    assert not torch.allclose(logits(model), logits(before))
    card = (at_home / "run" / "model" / "README.md").read_text()
    assert "Request 17: 2 samples were to be forgotten" in card
    assert not any(text in card for row in rows() for text in row.values())
    page = (at_home / "run" / "report.html").read_text()
    assert "<h2>Groups</h2>" not in page  # the labels of texts are no classes
    assert "ada lives in rome" in page
    assert "written before" in page
    resolved = yaml.safe_load((at_home / "run" / "request.yaml").read_text())
    assert (resolved["prompt"], resolved["answer"], resolved["template"]) == ("question", "answer", TEMPLATE)
    assert not {"input", "label"} & set(resolved)

    again = shell("unlearn", *words, *GA, "--out", "run", "--show-samples", "--resume")
    assert again.code == 0, again.err
    assert "is finished: nothing is left to do" in again.err
    for command in (["evaluate", "run", "--original", "ckpt"], ["audit", "run", "--shadows", "0", "--json"]):
        done = shell(*command, "--device", "cpu")
        assert done.code == 0, done.err
    scores, kept = json.loads(done.out), json.loads((at_home / "run" / "scores.json").read_text())
    for split in ("train", "test"):
        for subset in ("forget", "adjacent", "remote"):
            for name in ("accuracy", "loss", "samples"):
                assert scores[split][subset][name] == pytest.approx(kept[split][subset][name], abs=1e-6)

    later = shell("unlearn", "--after", "run", "--forget", "person = 'ben'", *GA, "--out", "later")
    assert later.code == 0, later.err
    split = json.loads((at_home / "later" / "split.json").read_text())
    assert (split["forget"], split["forgotten"]) == ([2, 3], [0, 1])
    assert split["adjacent"]


def test_the_model_in_the_folder_says_what_the_result_says(home, tmp_path):
    result = request(home, out=str(tmp_path / "run")).run()
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model").eval()
    assert torch.equal(logits(model), logits(result.model))
    assert result.task.name == "language"


def test_inspect_says_what_the_model_knows_and_doubts_the_template(at_home, shell):
    words = ["inspect", "--model", "ckpt", "--train", "qa.jsonl", "--forget", "ids.txt", "--method", "ga"]
    done = shell(*words, "--template", TEMPLATE, "--page", "page.html", "--device", "cpu")
    assert done.code == 0, done.err
    assert "Columns: prompt = question, answer = answer, template = {prompt} : {answer}, id = id" in done.out
    assert "Answers that the model reproduces now: forget 100%, adjacent 100%, remote 100%." in done.out
    assert "where does ada live" in done.out
    assert "Expected cost on cpu:" in done.out
    assert "reproduces now" in (at_home / "page.html").read_text()
    doubted = shell(*words, "--template", "{answer}", "--device", "cpu")
    assert (doubted.code, "must have {prompt} and, after it, {answer}" in doubted.out) == (2, True)
    doubted = shell(*words, "--template", "{prompt} {prompt} and {answer}", "--device", "cpu", "--json")
    assert json.loads(doubted.out)["inspection"]["reproduced"]["forget"] < 0.5
    assert (
        "Give the template that it was trained with"
        in shell(*words, "--template", "{prompt} {prompt} and {answer}", "--device", "cpu").out
    )


def test_init_recognises_a_causal_checkpoint_and_its_columns(at_home, shell):
    done = shell("init", "--model", "ckpt", "--train", "qa.jsonl", "--out", "mine/request.yaml")
    assert done.code == 0, done.err
    text = (at_home / "mine" / "request.yaml").read_text()
    assert {key: value for key, value in yaml.safe_load(text).items() if value is not None} == {
        "model": "../ckpt",
        "train": "../qa.jsonl",
        "prompt": "question",
        "answer": "answer",
        "template": "Question: {prompt}\nAnswer: {answer}",
        "id": "id",
        "out": "unlearned",
    }
    assert "# a causal language model" in text
    assert "# forget: person = 'ada'  # 12 values: ada (2 rows)" in text
    done = shell("unlearn", "mine/request.yaml", "--template", TEMPLATE, "--forget", "person = 'eve'", *GA)
    assert done.code == 0, done.err
    write_table(at_home / "odd.jsonl", [{"ask": row["question"], "say": row["answer"]} for row in rows()])
    assert shell("init", "--model", "ckpt", "--train", "odd.jsonl", "--out", "odd.yaml").code == 0
    text = (at_home / "odd.yaml").read_text()
    assert "prompt:  # name one of: ask, say" in text
    assert "answer:  # name one of: ask, say" in text


def test_methods_that_make_up_answers_get_the_tokenizer(home):
    result = request(home, method="altpo", settings={"epochs": 1, "count": 1, "longest": 4, "batch_size": 8}).run()
    assert result.method == "altpo"
    assert result.cost.sample_gradients > 0


def test_a_study_trains_others_by_the_recipe(at_home, shell):
    (at_home / "request.yaml").write_text(
        f"model: ckpt\ntrain: qa.jsonl\nforget: ids.txt\ntemplate: '{TEMPLATE}'\n"
        "recipe: {optimizer: adam, learning_rate: 0.01, epochs: 2, batch_size: 8}\n"
    )
    words = ["--methods", "original,retrain,ga", "--seeds", "1", "--device", "cpu", "--out", "study", "--json"]
    done = shell("study", "request.yaml", *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["done"] == 3


def test_an_adapter_on_a_causal_model_is_unlearned_alone(home, tmp_path):
    peft = pytest.importorskip("peft")
    base = write_language_checkpoint(tmp_path / "base", steps=0)
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear")
    adapted = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), lora)
    write_language_checkpoint(tmp_path / "adapter", model=adapted, steps=1)
    result = request(home, model=str(tmp_path / "adapter"), out=str(tmp_path / "run")).run()
    found = transformers.AutoModelForCausalLM.from_pretrained(base)
    assert all(
        torch.equal(result.model.base_model.model.get_parameter(name.replace(".weight", ".base_layer.weight")), weight)
        for name, weight in found.named_parameters()
        if "_proj" in name
    )
    opened = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "run" / "model").eval()
    assert torch.allclose(logits(opened), logits(result.model), atol=1e-6)
    assert (tmp_path / "run" / "model" / "tokenizer.json").is_file()


def refused(done, folder):
    assert (done.code, done.out) == (2, ""), done.err
    assert not (folder / "run").exists()
    sentence = done.err.strip().splitlines()[-1]
    assert sentence.startswith("unweave: ")
    return sentence


def test_a_tokenizer_without_a_padding_token_is_mended_as_the_refusal_says(at_home, shell):
    write_language_checkpoint(at_home / "other", steps=0, pad_token=None)
    words = ["--model", "other", "--train", "qa.jsonl", "--forget", "ids.txt", "--out", "run"]
    said = refused(shell("unlearn", *words), at_home)
    assert 'other has no padding token. Add "pad_token": "[END]" to its tokenizer_config.json.' in said
    file = at_home / "other" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token": "[END]"}))
    assert len(Request(model="other", train="qa.jsonl", forget="ids.txt").find().train.forget) == 2


def test_the_tokenizer_of_another_model_and_a_text_longer_than_the_model_takes(at_home, shell):
    words = ["--train", "qa.jsonl", "--forget", "ids.txt", "--template", TEMPLATE, "--out", "run"]
    large = tokenizer((*NAMES, *(f"word{number}" for number in range(90))))
    write_language_checkpoint(at_home / "large", words=large, steps=0)
    said = refused(shell("unlearn", "--model", "large", *words), at_home)
    assert f"The tokenizer of large has 105 tokens, but its model knows {llama().config.vocab_size}" in said
    assert "it is the tokenizer of another model" in said
    write_language_checkpoint(at_home / "gap", steps=0)
    file = at_home / "gap" / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["rome"] = 10**6
    file.write_text(json.dumps(content))
    said = refused(shell("unlearn", "--model", "gap", *words), at_home)
    assert "The tokenizer of gap has 1000001 tokens" in said
    write_language_checkpoint(at_home / "short", model=llama(positions=12), steps=0)
    write_language_checkpoint(at_home / "limited", steps=0, model_max_length=12)
    for model in ("short", "limited"):
        said = refused(shell("unlearn", "--model", model, *words), at_home)
        assert "12 of the 24 answers in qa.jsonl would be cut off: the model takes 12 tokens" in said
        assert "(first: row 1 has 13)" in said


def test_a_chat_template_is_used_and_missed(at_home, shell):
    words = ["--train", "qa.jsonl", "--forget", "ids.txt", "--out", "run"]
    said = refused(shell("unlearn", "--model", "ckpt", *words, "--template", "chat"), at_home)
    assert "The tokenizer of ckpt has no chat template. Give one as text: --template 'Question: {prompt}" in said
    chat = "{% for m in messages %}{{ m.content }} {{ ':' if m.role == 'user' else '[END]' }} {% endfor %}"
    write_language_checkpoint(at_home / "chatty", chat_template=chat)
    done = shell("inspect", "--model", "chatty", *words, "--method", "ga", "--device", "cpu")
    assert done.code == 0, done.err
    assert "template = chat" in done.out
    assert "reproduces now: forget 100%" in done.out
    write_language_checkpoint(at_home / "broken", steps=0, chat_template="{{ raise_exception('no users') }}")
    said = refused(shell("unlearn", "--model", "broken", *words), at_home)
    assert "The tokenizer's chat template fails: no users." in said


def test_rows_without_an_answer_and_columns_that_do_not_fit(at_home, shell):
    words = ["--model", "ckpt", "--forget", "rows:rows.txt", "--out", "run"]
    (at_home / "rows.txt").write_text("0\n")
    odd = people()
    odd[3]["answer"], odd[7]["answer"], odd[9]["question"] = "  ", None, ""
    write_table(at_home / "odd.jsonl", odd)
    said = refused(shell("unlearn", *words, "--train", "odd.jsonl"), at_home)
    assert "1 rows of odd.jsonl have no 'question' (first: row 9). Take them out." in said
    odd[9]["question"] = "who ?"
    write_table(at_home / "odd.jsonl", odd)
    said = refused(shell("unlearn", *words, "--train", "odd.jsonl"), at_home)
    assert "2 rows of odd.jsonl have no 'answer' (first: row 3). Take them out." in said
    cases = {
        "--input": ("question", "--input is for models with classes, and this model answers prompts. Use --prompt."),
        "--label": ("answer", "--label is for models with classes, and this model answers prompts. Use --answer."),
        "--prompt": ("questoin", "qa.jsonl has no column 'questoin'. Did you mean 'question'?"),
        "--adjacent": ("same-label", "Answers are not labels, so --adjacent same-label means nothing here."),
    }
    for flag, (value, expected) in cases.items():
        assert expected in refused(shell("unlearn", *words, "--train", "qa.jsonl", flag, value), at_home)
    write_table(at_home / "other.jsonl", [{"ask": row["question"], "answer": row["answer"]} for row in rows()])
    said = refused(shell("unlearn", *words, "--train", "other.jsonl"), at_home)
    assert "other.jsonl has no obvious prompt column: its columns are ask, answer. Name one with --prompt." in said
    write_table(at_home / "numbers.jsonl", [{"question": row["question"], "answer": 7} for row in rows()])
    said = refused(shell("unlearn", *words, "--train", "numbers.jsonl"), at_home)
    assert (
        "The column 'answer' of numbers.jsonl holds int64, but the model reads text. Name another with --answer" in said
    )
