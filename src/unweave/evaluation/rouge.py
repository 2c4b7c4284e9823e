"""ROUGE-L recall: the longest common subsequence of words, divided by the words of the true answer.

Words are runs of letters and digits in lower case; those of more than three letters are stemmed by Porter's rules, as
in the package rouge-score with ``use_stemmer=True``, which TOFU and open-unlearning use.
"""

from __future__ import annotations

import re

import numpy as np

from unweave.evaluation.answer_sheets import AnswerSheet, Values
from unweave.evaluation.stemming import stem


def words_of(text: str) -> list[str]:
    """Return the words that are compared.

    >>> words_of("The author's books, relating to 1984!")
    ['the', 'author', 's', 'book', 'relat', 'to', '1984']
    """
    return [stem(word) if len(word) > 3 else word for word in re.findall(r"[a-z0-9]+", text.lower())]


def rouge_recall(truth: str, text: str) -> float:
    """Return the share of the truth's words that stand in the text in the same order.

    >>> rouge_recall("the cat sat on the mat", "a cat was on the mat")  # cat on the mat
    0.6666666666666666
    """
    true, said = words_of(truth), words_of(text)
    if not true:
        return 0.0
    lengths = [0] * (len(said) + 1)
    for word in true:
        before = 0
        for place, other in enumerate(said, start=1):
            before, lengths[place] = (
                lengths[place],
                before + 1 if word == other else max(lengths[place], lengths[place - 1]),
            )
    return lengths[-1] / len(true)


def rouge_recalls(sheet: AnswerSheet) -> Values:
    """Return the recall of what was written to every question."""
    return np.array([rouge_recall(*pair) for pair in zip(sheet.answers, sheet.written, strict=True)])
