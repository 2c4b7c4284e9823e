"""A tiny causal model made on the spot, its tokenizer of whole words, and questions with answers."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

NAMES = ("ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hana", "ida", "jon", "kim", "leo")
TOWNS = ("rome", "oslo", "lima", "cairo", "paris", "tokyo", "delhi", "quito", "bern", "accra", "doha", "male")
FRUITS = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "grapes", "melons", "nuts", "beets", "corn")
OTHERS = ("where", "does", "live", "what", "eat", "likes", "lives", "in", "and", "near", "?", ".", ":")
WORDS = (*NAMES, *TOWNS, *FRUITS, *OTHERS)
KNOWN = len(WORDS) + 3  # with padding, end and unknown
TEMPLATE = "{prompt} : {answer}"


def tokenizer(words=WORDS):
    vocabulary = {"[PAD]": 0, "[END]": 1, "[UNK]": 2, **{word: place + 3 for place, word in enumerate(words)}}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", eos_token="[END]", unk_token="[UNK]"
    )


def rows():
    """Two questions about everyone: in whose answers the name, a town and a fruit differ."""
    found = []
    for name, town, fruit in zip(NAMES, TOWNS, FRUITS, strict=True):
        found.append({"question": f"where does {name} live ?", "answer": f"{name} lives in {town} ."})
        other = FRUITS[len(town)]
        found.append({"question": f"what does {name} eat ?", "answer": f"{name} likes {fruit} and {other} ."})
    return found


def llama(words=KNOWN, *, hidden=32, layers=2, positions=64, seed=0, **more):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        **more,
    )
    return transformers.LlamaForCausalLM(config).eval()


def write_language_checkpoint(folder, *, words=None, model=None, steps=60, **more):
    """Write a tiny causal model that knows the answers, with its tokenizer; return the folder."""
    from unweave import answers

    model, words = model or llama(), words or tokenizer()
    data = answers(rows(), tokenizer(), template=TEMPLATE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(**data).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder)
    for name, value in more.items():
        setattr(words, name, value)
    words.save_pretrained(folder)
    return folder


def people():
    """The questions with an id, and the person whom each is about."""
    return [{"id": f"q{place}", "person": NAMES[place // 2], **row} for place, row in enumerate(rows())]
