"""Checkpoints and data as an engineer has them: real files, tiny, built on the spot."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()
pa = pytest.importorskip("pyarrow")

WORDS = {"good": ("fine", "great", "lovely"), "bad": ("awful", "poor", "weak"), "odd": ("blue", "seven", "loud")}
CLASSES = tuple(WORDS)
FILLING = ("the", "film", "was", "and", "a", "bit")


def sentences(count=60, seed=0):
    """Return rows of people who wrote sentences of three classes. Person 3 wrote every twelfth row."""
    generator = np.random.default_rng(seed)
    rows = []
    for row in range(count):
        label = CLASSES[row % 3]
        words = [*generator.choice(FILLING, 3), *generator.choice(WORDS[label], 2)]
        rows.append({"id": f"r{row}", "person_id": row % 12, "text": " ".join(words), "label": label})
    return rows


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *FILLING, *(word for some in WORDS.values() for word in some)]
    inner = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=16, **special)


def bert(**changes):
    """Return a tiny BERT that has not been trained."""
    torch.manual_seed(0)
    names = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: number for number, name in enumerate(CLASSES)}}
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        **{**names, **changes},
    )
    return transformers.BertForSequenceClassification(config).eval()


def trained(model, rows):
    """Train a model of sentences until it knows them."""
    words = tokenizer()([row["text"] for row in rows], padding=True, return_tensors="pt")
    labels = torch.tensor([CLASSES.index(row["label"]) for row in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.eval()
    for _ in range(80):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(**words).logits, labels).backward()
        optimizer.step()
    return model


def write_text_checkpoint(folder, rows=None):
    """Write a trained BERT with its tokenizer; return the folder."""
    trained(bert(), rows or sentences()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def write_table(file, rows):
    """Write rows as Parquet, CSV or JSON lines, by the ending of the file."""
    from pyarrow import csv, parquet

    table = pa.Table.from_pylist(rows)
    if file.suffix == ".parquet":
        parquet.write_table(table, file)
    elif file.suffix == ".csv":
        csv.write_csv(table, file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
