"""ROUGE-L recall: the longest common subsequence of words, divided by the words of the true answer.

Words are runs of letters and digits in lower case; those of more than three letters are stemmed by Porter's rules, as
in the package rouge-score with ``use_stemmer=True``, which TOFU and open-unlearning use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from unweave.evaluation.answer_sheets import AnswerSheet, Values
from unweave.evaluation.stemming import stem


def words_of(text: str) -> list[str]:
    """Return the words that are compared.

    >>> words_of("The author's books, relating to 1984!")
    ['the', 'author', 's', 'book', 'relat', 'to', '1984']
    """
    return [stem(word) if len(word) > 3 else word for word in re.findall(r"[a-z0-9]+", text.lower())]


@lru_cache(maxsize=20_000)  # a study scores its references again for each model
def rouge_recall(truth: str, text: str) -> float:
    """Return the share of the truth's words that stand in the text in the same order.

    >>> rouge_recall("the cat sat on the mat", "a cat was on the mat")  # cat on the mat
    0.6666666666666666
    """
    true, said = words_of(truth), words_of(text)
    return common(true, said) / len(true) if true else 0.0


def common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by bits (Hyyrö 2004): a whole row of the table is a number.

    >>> common(["the", "cat", "sat"], ["the", "fat", "cat"])
    2
    """
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(first)) - 1
    row = every  # a bit is 0 where the table grows
    for word in second:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(first) - row.bit_count()


def rouge_recalls(sheet: AnswerSheet) -> Values:
    """Return the recall of what was written to every question."""
    return np.array([rouge_recall(*pair) for pair in zip(sheet.answers, sheet.written, strict=True)])
