"""TOFU's questions about fictitious authors: where they lie, how they become tokens, and which authors are near.

Maini et al., "TOFU: A Task of Fictitious Unlearning for LLMs" (COLM 2024): 200 authors with 20 questions each, in
order. The files are JSON lines, one for each configuration of the data set on the Hub (``tofu/full.json``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from unweave.data import CHAT, PLAIN, answers
from unweave.errors import UsageError
from unweave.lab.benchmarks import networks
from unweave.lab.benchmarks.benchmark import Options
from unweave.lab.benchmarks.sources import HUB
from unweave.settings import setting
from unweave.storage import read_json_lines

EACH, AUTHORS = 20, 200  # questions of an author, authors
SMALL_AUTHORS = 8
HUB_NAME = "locuslab/TOFU"
SMALL_TEMPLATE = "{prompt} {answer}"
SMALL_WORDS = re.compile(r"\w+|[^\w\s]")
PADDING, END, UNKNOWN = "[PAD]", "[END]", "[UNK]"
NEAREST = 20  # how many neighbours each forget question names
Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class AuthorOptions(Options):
    """The options of benchmarks with questions about authors."""

    model: str = setting("", help="A causal model: a transformers folder (also inside --data), or a name on the Hub.")
    template: str = setting(
        "", help="A text with {prompt} and {answer}. Empty: the tokenizer's chat template, or else a plain one."
    )
    rate: float = setting(
        1e-5, above=0, help="Step size of training the original. Models with less than 1B parameters need a larger one."
    )
    epochs: int = setting(5, at_least=1, help="Passes over the training questions.")
    batch: int = setting(32, at_least=1, help="Questions per step of training.")
    asked: int = setting(400, at_least=1, help="Most questions of a group that models are asked, except of forget.")


@lru_cache(maxsize=32)
def read_rows(data: str | None, name: str, count: int | None = None) -> Rows:
    """Return the rows of one configuration, such as ``full`` or ``forget10_perturbed``. Raise if some are missing."""
    if data is None:
        raise UsageError(
            f"This benchmark needs the data set tofu. It is {HUB_NAME} on the Hugging Face Hub. Pass --data DATA, a "
            "folder that holds tofu/full.json (or set UNWEAVE_DATA). With the extra `datasets` installed, --data hub "
            "reads it from the Hub."
        )
    where, _, other = data.partition(":")
    rows = _from_hub(other or HUB_NAME, name) if where == HUB else _from_folder(Path(data), name)
    if count is not None and len(rows) != count:
        raise UsageError(f"tofu ({name}) has {len(rows)} rows, but should have {count}. Use a complete copy.")
    for place, row in enumerate(rows):
        if not {"question", "answer"} <= set(row):
            raise UsageError(f"Row {place} of tofu ({name}) lacks a question or an answer; it has {sorted(row)}.")
    return rows


def _from_folder(data: Path, name: str) -> Rows:
    places = [folder / f"{name}.json" for folder in (data / "tofu", data / "TOFU", data)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise UsageError(
            f"No {name} of tofu under {data}: expected {places[0]}. It is {HUB_NAME} on the Hugging Face Hub."
        )
    rows = read_json_lines(file)
    if any(not isinstance(row, dict) for row in rows):
        raise UsageError(f"{file} must hold one JSON object a line.")
    return rows


def _from_hub(hub: str, name: str) -> Rows:
    datasets = networks.need("datasets")
    try:
        return [dict(row) for row in datasets.load_dataset(hub, name, split="train")]
    except (OSError, ValueError) as error:
        raise UsageError(f"{hub} ({name}) cannot be read from the Hub: {error}") from error


@dataclass(frozen=True)
class Words:
    """The tokenizer, the template and the model of a benchmark."""

    tokenizer: Any
    template: str
    make: Callable[[], nn.Module]
    initialisation: str

    def tokens(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return questions and answers as tokens."""
        return answers(rows, self.tokenizer, template=self.template)


def words_of(options: AuthorOptions, data: str | None) -> Words:
    """Return tokenizer, template and model."""
    if options.small:
        tokenizer = _small_tokenizer(data)
        return Words(tokenizer, SMALL_TEMPLATE, lambda: small_model(len(tokenizer)), "random")
    if not options.model:
        raise UsageError(
            "This benchmark needs a causal language model: --option model=FOLDER, or a name on the Hub "
            "(OWNER/NAME). --small makes a tiny one on the spot."
        )
    transformers = networks.need("transformers")
    folder = networks.find_folder(options.model, data)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"The tokenizer of {options.model!r} cannot be loaded: {error}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    template = options.template or (CHAT if getattr(tokenizer, "chat_template", None) else PLAIN)
    known = networks.weights_fingerprint(options.model, data)
    weights = f"pretrained: {options.model}" + (f" (sha256 of the weights: {known})" if known else "")
    return Words(tokenizer, template, lambda: networks.causal_model(options.model, data), weights)


@lru_cache(maxsize=4)
def _small_tokenizer(data: str | None) -> Any:
    """Return a tokenizer of whole words, made from the questions that ``--small`` uses."""
    rows = [row for name in SMALL_FILES for row in read_rows(data, name)[-SMALL_AUTHORS * EACH :]]
    return word_tokenizer([text for row in rows for text in (row["question"], row["answer"])])


def word_tokenizer(texts: Sequence[str]) -> Any:
    """Return a tokenizer of the whole words of some texts."""
    tokenizers, transformers = networks.need("tokenizers"), networks.need("transformers")
    known = dict.fromkeys(word for text in texts for word in SMALL_WORDS.findall(text))
    numbers = {word: place for place, word in enumerate([PADDING, END, UNKNOWN, *known])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=UNKNOWN))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=PADDING, eos_token=END, unk_token=UNKNOWN
    )


def small_words(texts: Sequence[str]) -> Words:
    """Return a tokenizer of the words of some texts, and a tiny model for it."""
    tokenizer = word_tokenizer(texts)
    return Words(tokenizer, SMALL_TEMPLATE, lambda: small_model(len(tokenizer)), "random")


def spread(rows: Rows, most: int) -> Rows:
    """Return at most so many rows, evenly spread.

    >>> spread([{"n": 0}, {"n": 1}, {"n": 2}], 2)
    [{'n': 0}, {'n': 2}]
    """
    places = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))
    return [rows[place] for place in places]


SMALL_FILES = ("forget10_perturbed", "holdout01", "real_authors_perturbed", "world_facts_perturbed")


def small_model(words: int) -> nn.Module:
    """Return a tiny causal model with random weights."""
    transformers = networks.need("transformers")
    config = transformers.LlamaConfig(
        vocab_size=words,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model


# Neighbours


def nearest_by_votes(distances: np.ndarray, *, groups: np.ndarray, share: float) -> np.ndarray:
    """Return a mask of retained questions: the groups that forget questions name most often, up to a share of all.

    Args:
        distances: From each forget question to each retained question.
        groups: The group of each retained question, such as its author. A group is taken whole.
        share: The largest share of retained questions.

    >>> nearest_by_votes(np.array([[0.1, 0.9, 0.2, 0.8]]), groups=np.array([0, 0, 1, 1]), share=0.5).tolist()
    [True, True, False, False]
    """
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEAREST]
    names = np.unique(groups)
    votes = np.zeros(len(names))
    for row, places in enumerate(nearest):
        weights = 1 / (1e-9 + distances[row, places])  # nearer questions count more
        np.add.at(votes, np.searchsorted(names, groups[places]), weights / weights.sum())
    chosen = np.zeros(len(groups), dtype=bool)
    for name in names[np.argsort(-votes, kind="stable")]:
        mine = groups == name
        if chosen.sum() + mine.sum() > max(share * len(groups), mine.sum()):
            break
        chosen |= mine
    return chosen


def template_distances(asked: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return the word-level Levenshtein distances of questions, with names and numbers masked.

    >>> template_distances(["Where was Ada born?"], ["Where was Ben Lee born?", "What did Ben write?"]).tolist()
    [[0.0, 3.0]]
    """
    left, right = ([_masked(text) for text in texts] for texts in (asked, others))
    numbers = {word: place for place, word in enumerate(dict.fromkeys(word for text in left + right for word in text))}
    lengths = np.array([len(text) for text in right])
    table = np.full((len(right), lengths.max()), -1)
    for row, text in enumerate(right):
        table[row, : len(text)] = [numbers[word] for word in text]
    return np.stack([_edits([numbers[word] for word in text], table, lengths) for text in left])


def _edits(text: list[int], table: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    width = table.shape[1]
    before = np.tile(np.arange(width + 1, dtype=float), (len(table), 1))
    for place, word in enumerate(text, start=1):
        now = np.empty_like(before)
        now[:, 0] = place
        change = before[:, :-1] + (table != word)
        for column in range(1, width + 1):
            now[:, column] = np.minimum(np.minimum(before[:, column], now[:, column - 1]) + 1, change[:, column - 1])
        before = now
    found: np.ndarray = before[np.arange(len(table)), lengths]
    return found


def _masked(text: str) -> list[str]:
    """Return the words of a question; names (capitals after the first word) and numbers become one mark."""
    words = SMALL_WORDS.findall(text)
    found: list[str] = []
    for place, word in enumerate(words):
        masked = "NAME" if (place and word[0].isupper()) or word.isdigit() else word.lower()
        if not (masked == "NAME" and found and found[-1] == "NAME"):
            found.append(masked)
    return found
