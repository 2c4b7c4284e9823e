"""Tiny models of transformers on made-up data, with what is saved beside them."""

from __future__ import annotations

import pytest
import torch

from unweave import Split

transformers = pytest.importorskip("transformers")


def image_model(classes=3):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        num_labels=classes,
    )
    return transformers.ViTForImageClassification(config).eval()


def image_split():
    images = torch.randn(30, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    data = {"pixel_values": images, "labels": torch.arange(30) // 10}
    return Split(data, forget=range(5), adjacent=range(5, 10), remote=range(10, 30))


def image_processor():
    return transformers.ViTImageProcessorPil(size={"height": 8, "width": 8})


def tied_model():
    """A language model, whose file holds the embeddings once."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def tokenizer():
    import tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, **{str(number): number + 2 for number in range(28)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")
