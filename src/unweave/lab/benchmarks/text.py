"""Sentences as tensors, and classifiers for them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.lab.benchmarks import networks
from unweave.lab.benchmarks.benchmark import MethodSettings, Options
from unweave.settings import setting

SMALL_LONGEST = 32  # words of a sentence
SMALL_WORDS = 2_000
# The authors' algorithms with step sizes for a pretrained encoder: theirs are for convolutional networks from scratch.
# Methods that take few steps, because they use the forget data only (ascent, DELETE), have larger ones.
FOR_ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "ft": {"batch_size": 64},
    "ga": {"learning_rate": 1e-3, "batch_size": 64},
    "l1-sparse": {"sparsity": 5e-5, "batch_size": 64},
    "scrub": {"learning_rate": 2e-5, "weight_decay": 0.0, "batch_size": 64},
    "salun": {"batch_size": 64},
    "delete": {"learning_rate": 1e-3, "batch_size": 64},
    "gdr": {"learning_rate": 2e-5, "batch_size": 64},
    "munba": {"batch_size": 64},
}
BY_PROFILE: MethodSettings = {
    name: dict.fromkeys(("official", "closed-form") if name == "munba" else ("official",), values)
    for name, values in FOR_ENCODERS.items()
}
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(Options):
    """The options of a benchmark with sentences."""

    model: str = setting(
        "minilm",
        help="A transformers folder (also inside --data), a Hub name (sentence-transformers/all-MiniLM-L6-v2, "
        "microsoft/mpnet-base), or MODULE:FUNCTION.",
    )
    tokenizer: str = setting("", help="The tokenizer, if it is not the model's own; a folder or Hub name.")


def encode(
    texts: Mapping[str, Sequence[str]], options: EncoderOptions, data: str | None, *, longest: int
) -> dict[str, dict[str, Any]]:
    """Return the sentences of every part as padded tensors ``input_ids`` and ``attention_mask``.

    All are padded to the length of the longest, at most ``longest`` tokens, so they are tokenised once and stay on the
    device. Longer sentences are cut: a few outliers would make every batch wider.
    """
    if options.small:
        return encode_words(texts)
    source = options.tokenizer or options.model
    if networks.is_function(source):
        raise UsageError(f"The model {source!r} has no tokenizer. Name one: --option tokenizer=FOLDER or OWNER/NAME.")
    tokenizer = _tokenizer(source, data)
    found = {}
    for part, sentences in texts.items():
        encoded = tokenizer(
            list(sentences), padding="longest", truncation=True, max_length=longest, return_tensors="pt"
        )
        found[part] = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    return found


def _tokenizer(source: str, data: str | None) -> Any:
    transformers = networks.need("transformers")
    folder = networks.find_folder(source, data)
    # Without these files, transformers makes a tokenizer that knows no word, without a warning.
    if Path(folder).is_dir() and not any((Path(folder) / name).exists() for name in VOCABULARIES):
        raise UsageError(f"{folder} holds no tokenizer. It needs one of {', '.join(VOCABULARIES)}.")
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"The tokenizer of {source!r} cannot be loaded: {error}") from error


def encode_words(texts: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Tensor]]:
    """Number the words of the training sentences: ``--small`` needs no tokenizer. 0 is padding, 1 an unknown word.

    >>> encode_words({"train": ["a b", "a"], "test": ["b c a"]})["test"]["input_ids"]
    tensor([[3, 1, 2]])
    """
    counts = Counter(word for sentence in texts["train"] for word in sentence.lower().split())
    number = {word: place + 2 for place, (word, _) in enumerate(counts.most_common(SMALL_WORDS))}
    found = {}
    for part, sentences in texts.items():
        rows = [
            [number.get(word, 1) for word in sentence.lower().split()][:SMALL_LONGEST] or [1] for sentence in sentences
        ]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        found[part] = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    return found


def classifier(options: EncoderOptions, *, classes: int, data: str | None) -> networks.Network:
    """Return the network that classifies the sentences."""
    if options.small:
        return networks.Network(lambda: small_encoder(classes), "random")
    return networks.text_network(options.model, classes=classes, data=data)


def small_encoder(classes: int) -> nn.Module:
    """Return a tiny encoder over numbered words, with random weights."""
    transformers = networks.need("transformers")
    config = transformers.BertConfig(
        vocab_size=SMALL_WORDS + 2,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        max_position_embeddings=SMALL_LONGEST,
        num_labels=classes,
    )
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def held_out(texts: Sequence[str], groups: Sequence[Any], *, share: float, seed: int) -> np.ndarray:
    """Choose a share of every group for testing by a hash of seed and text: it does not depend on order or machine.

    >>> held_out(["a", "b", "c", "d"], [0, 0, 1, 1], share=0.5, seed=0).tolist()
    [False, True, True, False]
    """
    keys = [hashlib.sha256(f"{seed} {text}".encode()).hexdigest() for text in texts]
    chosen = np.zeros(len(texts), dtype=bool)
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    for rows in members.values():
        chosen[sorted(rows, key=lambda row: keys[row])[: round(share * len(rows))]] = True
    return chosen
