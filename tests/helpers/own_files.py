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
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.eval()
    for _ in range(100):
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


COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


def pictures(count=24, seed=0, size=(10, 9)):
    """Return small noisy images of three colours, with their colour's name."""
    from PIL import Image

    generator = np.random.default_rng(seed)
    found = []
    for row in range(count):
        colour = list(COLOURS)[row % 3]
        noise = generator.integers(-30, 30, (*size, 3))
        found.append((Image.fromarray((np.array(COLOURS[colour]) + noise).clip(0, 255).astype(np.uint8)), colour))
    return found


def png(image):
    import io

    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def processor():
    from transformers.models.vit import image_processing_pil_vit

    return image_processing_pil_vit.ViTImageProcessorPil(size={"height": 8, "width": 8})


def write_image_checkpoint(folder):
    """Write a tiny vision transformer that knows the colours, with its processor; return the folder."""
    torch.manual_seed(0)
    names = {"id2label": dict(enumerate(COLOURS)), "label2id": {name: number for number, name in enumerate(COLOURS)}}
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, **sizes, **names)
    ).eval()
    found = pictures()
    pixels = processor()(images=[image for image, _ in found], return_tensors="pt")["pixel_values"]
    labels = torch.tensor([list(COLOURS).index(colour) for _, colour in found])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pixels).logits, labels).backward()
        optimizer.step()
    model.save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder
