"""A model of transformers is saved as a folder that `from_pretrained` opens; any other module as its weights."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from torch import nn

from tests.helpers.folders import configuration
from tests.helpers.pretrained import image_model, image_processor, image_split, tied_model, tokenizer, transformers
from tests.helpers.tensors import same, weights
from unweave import Compute, Note, Request, RunError, SaveWith, Split, UsageError, load_weights, record, unlearn
from unweave.record import check_model, read_record
from unweave.storage import read_weights, save_model_folder

LABELS = ["cat", "dog", "owl"]


def run(model, out, **more):
    return unlearn(model, image_split(), "ga", learning_rate=1e-2, out=out, guard=None, compute=Compute("cpu"), **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out, model = tmp_path_factory.mktemp("saved") / "run", image_model()
    beside = SaveWith(image_processor(), labels=LABELS)
    return model, run(model, out, test=image_split(), callbacks=[beside, Note(request="2031-17")]), out


def test_from_pretrained_opens_the_result(made):
    model, result, out = made
    assert sorted(path.name for path in out.iterdir()) == [
        "history.jsonl",
        "model",
        "report.html",
        "run.json",
        "scores.json",
        "verdict.md",
    ]
    opened = transformers.AutoModelForImageClassification.from_pretrained(out / "model")
    images = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(opened(images).logits, result.model(images).logits)
    assert same(weights(opened), weights(result.model))
    assert opened.config.id2label == dict(enumerate(LABELS))
    processor = transformers.AutoImageProcessor.from_pretrained(out / "model")
    assert processor.size == image_processor().size
    assert model.config.id2label[0] == "LABEL_0"  # the model given is never changed


def test_the_weights_of_the_folder_fit_the_model_that_was_given(made):
    model, result, out = made
    for path in (out, out / "model"):
        assert same(weights(load_weights(copy.deepcopy(model), path)), weights(result.model))
    with pytest.raises(UsageError, match="does not fit the model"):
        load_weights(image_model(classes=4), out)
    with pytest.raises(UsageError, match="does not fit the model"):
        load_weights(nn.Linear(2, 2), out)


def test_a_record_of_the_folder_holds(made, tmp_path):
    model, result, out = made
    shutil.copytree(out, tmp_path / "run")
    record.write(tmp_path / "run", Request(id="17"), original=model, split=result.split, test=result.test)
    written = read_record(tmp_path / "run" / "record.json")
    assert check_model(written, read_weights(tmp_path / "run")).holds
    assert not check_model(written, model.state_dict()).holds


def test_the_card_says_what_was_done_and_names_nobody(made):
    _, result, out = made
    card = (out / "model" / "README.md").read_text()
    for words in (
        "method ga (profile",
        "Request 2031-17: 5 samples were to be forgotten; kept: 5 adjacent, 20 remote.",
        result.verdict.in_short,
        "No retrained model was compared",
        "The guard against collapse was turned off.",
        "| learning_rate | 0.01 |",
    ):
        assert words in card
    assert result.verdict.in_short.startswith("Forgotten: ")
    assert "%" not in card  # no subset has 50 samples
    files = [path.read_text() for path in (out / "model").iterdir() if path.suffix != ".safetensors"]
    assert not [text for text in files if str(out.parent) in text]


def test_a_tokenizer_is_saved_with_a_text_model(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).eval()
    tokens = torch.randint(1, 30, (30, 7), generator=torch.Generator().manual_seed(1))
    data = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.arange(30) // 10}
    split = Split(data, forget=range(5), adjacent=range(5, 10))
    kept = SaveWith(tokenizer())
    unlearn(model, split, "ga", out=tmp_path / "run", guard=None, callbacks=[kept], compute=Compute("cpu"))
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert opened("3 4 5")["input_ids"] == tokenizer()("3 4 5")["input_ids"] == [5, 6, 7]


def test_tied_weights_that_the_file_leaves_out_are_found(tmp_path):
    model = tied_model()
    save_model_folder(model, tmp_path / "model")
    assert same([*read_weights(tmp_path).values()], weights(model))
    assert same(weights(load_weights(tied_model(), tmp_path)), weights(model))


def test_a_model_that_was_changed_by_hand_is_saved_as_weights(tmp_path):
    """Its configuration would make another model, and `from_pretrained` would leave out the change without a word."""
    model = image_model()
    model.classifier = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 3))
    result = run(model, tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()
    assert same(weights(load_weights(model, tmp_path / "run")), weights(result.model))
    with pytest.raises(UsageError, match="Of this ViTForImageClassification only the weights are saved"):
        run(model, tmp_path / "other", callbacks=[SaveWith(image_processor())])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_cannot_be_saved_is_refused_before_the_run(tmp_path):
    for beside, message in (
        (SaveWith("tokenizer"), "not a str"),
        (SaveWith(labels=["cat", 7, "dog"]), "7 is not a string"),
        (SaveWith(labels=["cat"]), "the names of 1 labels, but the model has 3"),
    ):
        with pytest.raises(UsageError, match=message):
            run(image_model(), tmp_path / "run", callbacks=[beside])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_leaves_no_half_of_a_model(tmp_path):
    class Full:
        def save_pretrained(self, folder):
            raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="No space left on device"):
        run(image_model(), tmp_path / "run", callbacks=[SaveWith(Full())])
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.unfinished" / "model").exists()
    run(image_model(), tmp_path / "run", resume=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if "partial" in path.name) == []


def test_an_unfinished_run_of_an_older_version_resumes(model, split, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage2

    how = {"stage1_learning_rate": 1e-2, "out": tmp_path / "run", "compute": Compute("cpu")}
    with monkeypatch.context() as patch:
        patch.setattr(Stage2, "step", lambda self, number: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            unlearn(model, split, "two-stage", profile="released", **how)
    work = tmp_path / "run.unfinished"
    (work / "config.json").write_text(json.dumps(configuration(work)))
    (work / "begun").write_text("2001-02-03T04:05:06+00:00")
    (work / "run.json").unlink()
    with pytest.raises(UsageError, match="different values for settings"):
        unlearn(model, split, "two-stage", profile="released", **how, alpha=0.9, resume=True)
    unlearn(model, split, "two-stage", profile="released", **how, resume=True)
    assert not {"config.json", "begun"} & {path.name for path in (tmp_path / "run").iterdir()}
    assert configuration(tmp_path / "run")["method"] == "two-stage"
