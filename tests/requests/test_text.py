"""A tiny BERT, a table and what to forget: unlearned from the command line's request."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from tests.helpers.own_files import CLASSES, sentences, tokenizer, transformers, write_table, write_text_checkpoint
from unweave import Request, UsageError

QUICK = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 1}, "no_guard": True, "device": "cpu"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    write_text_checkpoint(folder / "checkpoint")
    for name in ("train.parquet", "train.csv", "train.jsonl"):
        write_table(folder / name, sentences())
    write_table(folder / "test.parquet", sentences(30, seed=1))
    (folder / "ids.txt").write_text("r0\nr12\nr24\n")
    return folder


def request(home, **changes):
    given = {"model": str(home / "checkpoint"), "train": str(home / "train.parquet"), "forget": str(home / "ids.txt")}
    return Request(**{**given, **QUICK, **changes})


@pytest.mark.parametrize("file", ["train.parquet", "train.csv", "train.jsonl"])
def test_a_table_is_read_through_the_checkpoints_own_tokenizer_and_label_names(home, file):
    prepared = request(home, train=str(home / file)).prepare()
    assert prepared.split.forget.tolist() == [0, 12, 24]
    assert prepared.split.samples.labels().tolist() == [row % 3 for row in range(60)]
    batch = prepared.split.samples.read(torch.tensor([5, 0]))
    rows = sentences()
    expected = tokenizer()([rows[5]["text"], rows[0]["text"]], padding="max_length", max_length=7, return_tensors="pt")
    for name, tokens in expected.items():
        assert torch.equal(batch[name], tokens), name


@pytest.mark.parametrize("limit", ["many", None, -1, [16]])
def test_a_tokenizer_with_another_limit_than_a_number_is_refused(home, tmp_path, limit):
    shutil.copytree(home / "checkpoint", tmp_path / "odd")
    file = tmp_path / "odd" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": limit}))
    if limit is None:  # no limit
        assert len(request(home, model=str(tmp_path / "odd")).prepare().split.forget) == 3
        return
    with pytest.raises(UsageError, match="has model_max_length"):
        request(home, model=str(tmp_path / "odd")).prepare()


def test_a_tokenizer_with_tokens_that_the_model_does_not_know_is_refused(home, tmp_path):
    shutil.copytree(home / "checkpoint", tmp_path / "odd")
    file = tmp_path / "odd" / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["fine"] = 10**6
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="gives the token 1000000, but its model knows 20 tokens"):
        request(home, model=str(tmp_path / "odd")).prepare()


def test_the_result_opens_with_from_pretrained_and_predicts_the_same(home, tmp_path):
    result = request(home, out=str(tmp_path / "run"), test=str(home / "test.parquet")).run()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    inputs = words([row["text"] for row in sentences()], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, result.model(**inputs).logits)
    assert model.config.id2label == dict(enumerate(CLASSES))
    assert not torch.equal(model.classifier.weight, request(home).prepare().model.classifier.weight)


def test_a_label_that_the_model_does_not_have_is_named(home, tmp_path):
    rows = [{**row, "label": "goood" if row["label"] == "good" else row["label"]} for row in sentences()]
    with pytest.raises(
        UsageError, match=r"1 labels of .* are not classes of the model \(first: 'goood'\). Did you mean"
    ):
        request(home, train=str(write_table(tmp_path / "odd.parquet", rows))).find()
