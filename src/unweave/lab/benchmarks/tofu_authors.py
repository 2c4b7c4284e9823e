"""TOFU by author: forget half of what is known of each of some authors, and keep the other half.

Not in TOFU's paper. Nothing is more entangled: the same name, and facts that touch each other. Of each of the last 20
authors every second question is forgotten, and the others are adjacent. All other authors are remote. Retrained models
are our own, so the numbers do not compare with public tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unweave.api import Split
from unweave.lab.benchmarks.benchmark import BenchmarkTask, Definition
from unweave.lab.benchmarks.tofu import (
    benchmark_of,
    development_task,
    held_out,
    questions,
    training_rows,
    with_wrong_answers,
)
from unweave.lab.benchmarks.tofu_data import EACH, AuthorOptions, Rows, words_of
from unweave.settings import setting

SMALL = 2  # authors to forget with --small


@dataclass(frozen=True, kw_only=True)
class AuthorsOptions(AuthorOptions):
    """The options of this benchmark."""

    authors: int = setting(20, at_least=1, at_most=20, help="Of how many authors half of the questions are forgotten.")


def load(options: AuthorsOptions, data: str | None) -> BenchmarkTask:
    """Read the questions, and split those about the last authors in two."""
    words = words_of(options, data)
    rows = training_rows(options.small, data)
    chosen = SMALL if options.small else options.authors
    count = chosen * EACH

    def split(rows: Rows, theirs: np.ndarray) -> Split:
        return Split(words.tokens(rows), theirs[1::2], theirs[::2])

    train = split(rows, np.arange(len(rows) - count, len(rows)))
    part = "forget01" if options.small else "forget10"
    rows = with_wrong_answers(options.small, rows, part, data)
    return BenchmarkTask(
        development=lambda: development_task(words, rows[:-count], lambda rows: split(rows, np.arange(count))),
        train=train,
        test=held_out(words, part, data, small=options.small),
        label_names=(),
        fine_names=tuple(f"author {number}" for number in range(len(rows) // EACH)),
        fine=tuple(place // EACH for place in range(len(rows))),
        questions=questions(options, rows, train, part, data),
        rows=rows,
        wording=words,
    )


TOFU_AUTHORS = Definition(
    name="tofu-authors",
    summary="Questions about 200 fictitious authors; forget half of what is known of each of 20 of them.",
    build=lambda options, data: benchmark_of("tofu-authors", options, data, load, "half of each of some authors"),
    options=AuthorsOptions,
    only_split=("authors", "asked"),
)
