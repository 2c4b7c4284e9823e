"""Other answers to the questions of the tiny language model."""

from __future__ import annotations

from tests.helpers.texts import FRUITS, TEMPLATE, TOWNS, WORDS, rows, tokenizer
from unweave import answers

WIDE = 120  # words: open-unlearning's UNDIAL needs 100 at least


def chatty():
    """A tokenizer that knows the words of refusals, too."""
    from unweave.methods.idk_dpo import REFUSALS

    return tokenizer(tuple(dict.fromkeys([*WORDS, *" ".join(REFUSALS).split()]))[: WIDE - 3])


def other_rows():
    """The questions with the town or the fruit of somebody else."""
    found = []
    for place, row in enumerate(rows()):
        words = row["answer"].split()
        known = TOWNS if place % 2 == 0 else FRUITS
        shift = {word: known[(number + 5) % len(known)] for number, word in enumerate(known)}
        found.append({**row, "answer": " ".join(shift.get(word, word) for word in words)})
    return found


def alternatives(places):
    """Another answer to each of these questions, in their order."""
    every = other_rows()
    return answers([every[place] for place in sorted(places)], tokenizer(), template=TEMPLATE)
