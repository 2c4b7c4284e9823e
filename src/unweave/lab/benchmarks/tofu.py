"""TOFU: 200 fictitious authors with 20 questions each; forget the last 2, 10 or 20 authors.

Maini et al., "TOFU: A Task of Fictitious Unlearning for LLMs" (COLM 2024). What is adjacent is ours: a tenth of the
retained questions.

- ``neighbours``: the authors whose questions are nearest to the forgotten ones, in the model's hidden states before
  fine-tuning
- ``syntax``: the questions whose wording is nearest when names are masked, whatever they ask

All other retained authors are remote. The test data has held-out authors as *forget* (nobody was trained on them, so
attacks compare with them), and real authors and world facts as *remote*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from unweave.api import Split
from unweave.data import Samples
from unweave.evaluation import features
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition, MethodSettings
from unweave.lab.benchmarks.tofu_data import (
    AUTHORS,
    EACH,
    SMALL_AUTHORS,
    AuthorOptions,
    Rows,
    Words,
    nearest_by_votes,
    read_rows,
    spread,
    template_distances,
    words_of,
)
from unweave.lab.benchmarks.tofu_settings import (
    given_for,
    language_searches,
    language_settings,
    recipe_of,
    small_language_settings,
)
from unweave.settings import setting

SIZES = {"forget01": 2, "forget05": 10, "forget10": 20}  # authors
SHARE = 0.1  # of the retained questions
FEW = 20  # questions of a group with --small
JUDGED = 400  # remote questions that judge a trial


@dataclass(frozen=True, kw_only=True)
class TofuOptions(AuthorOptions):
    """The options of this benchmark."""

    forget: Literal["forget01", "forget05", "forget10"] = setting("forget10", help="1, 5 or 10% of the authors.")
    adjacent: Literal["neighbours", "syntax"] = setting(
        "neighbours", help="The nearest authors by the model's hidden states, or the questions of the nearest wording."
    )


def load(options: TofuOptions, data: str | None) -> BenchmarkTask:
    """Read the questions, and find the neighbours of those to forget."""
    words = words_of(options, data)
    rows = training_rows(options.small, data)
    part = "forget01" if options.small else options.forget
    count = SIZES[part] * EACH

    def split(rows: Rows, forget: np.ndarray) -> Split:
        tokens = words.tokens(rows)
        return Split(tokens, forget, _adjacent(options, words, rows, tokens, forget))

    train = split(rows, np.arange(len(rows) - count, len(rows)))
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


def development_task(words: Words, rows: Rows, split: Callable[[Rows], Split]) -> BenchmarkTask:
    """Return a task for tuning, without the authors who are forgotten: the first ones take their place.

    TOFU has wrong answers for the first 20 authors, too. Facts that a model never saw cannot be forgotten, so trials
    are judged on the very questions that are forgotten and kept; of the remote ones, on some.
    """
    train = split(rows)
    remote = train["remote"]
    some = remote[np.linspace(0, len(remote) - 1, min(JUDGED, len(remote))).round().astype(int)]
    test = Split(train.samples, train["forget"], train["adjacent"], some)
    return BenchmarkTask(train=train, test=test, label_names=(), rows=rows, wording=words)


def training_rows(small: bool, data: str | None) -> Rows:
    """Return the questions that models are trained on; with ``small``, those about the last authors."""
    return read_rows(data, "full", AUTHORS * EACH)[-SMALL_AUTHORS * EACH if small else 0 :]


def held_out(words: Words, part: str, data: str | None, *, small: bool) -> Split:
    """Return the test data: held-out authors, and real authors and world facts."""
    unseen = read_rows(data, part.replace("forget", "holdout"))
    others = [row for name in ("real_authors_perturbed", "world_facts_perturbed") for row in read_rows(data, name)]
    others = spread(others, FEW) if small else others
    return Split(
        words.tokens([*unseen, *others]),
        forget=np.arange(len(unseen)),
        adjacent=[],
        remote=len(unseen) + np.arange(len(others)),
        allow_empty=True,
    )


def with_wrong_answers(small: bool, rows: Rows, part: str, data: str | None) -> Rows:
    """Return training questions with their paraphrases and wrong answers, where TOFU has some."""
    files = ("forget10_perturbed" if small else f"{part}_perturbed", "retain_perturbed")
    perturbed = {row["question"]: row for name in files for row in read_rows(data, name)}
    return [perturbed.get(row["question"], row) for row in rows]


def questions(options: AuthorOptions, rows: Rows, train: Split, part: str, data: str | None) -> dict[str, Rows]:
    """Return the questions that answers are scored on, by group."""
    groups = {subset: [rows[row] for row in train[subset]] for subset in GROUPS}
    retain = groups["adjacent"] + groups["remote"] if options.small else read_rows(data, "retain_perturbed")
    groups["retain"] = retain
    groups["real_authors"] = read_rows(data, "real_authors_perturbed")
    groups["world_facts"] = read_rows(data, "world_facts_perturbed")
    groups["held_out"] = read_rows(data, part.replace("forget", "holdout"))
    most = FEW if options.small else options.asked
    return {name: some if name == "forget" else spread(some, most) for name, some in groups.items()}


GROUPS = ("forget", "adjacent", "remote")


def _adjacent(options: TofuOptions, words: Words, rows: Rows, tokens: Any, forget: np.ndarray) -> np.ndarray:
    """Return the retained questions that are adjacent."""
    kept = np.setdiff1d(np.arange(len(rows)), forget)
    if options.adjacent == "syntax":
        gone, others = ([rows[row]["question"] for row in some] for some in (forget, kept))
        near = nearest_by_votes(template_distances(gone, others), groups=kept, share=SHARE)
        return np.asarray(kept[near])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = features(words.make(), Samples(dict(tokens)), torch.arange(len(rows)), precision="float32")
    distances = torch.cdist(found[forget], found[kept]).numpy()
    return np.asarray(kept[nearest_by_votes(distances, groups=kept // EACH, share=SHARE)])


def benchmark_of(name: str, options: AuthorOptions, data: str | None, load: Any, what: str) -> Benchmark:
    """Return a benchmark with questions about authors."""
    settings: MethodSettings = small_language_settings() if options.small else language_settings(options)
    initialisation = "random" if options.small else f"pretrained: {options.model or 'none named'}"
    return Benchmark(
        name=name,
        load=partial(load, options, data),
        model=partial(initial_model, options, data),
        recipe=recipe_of(options),
        settings=settings,
        searches={} if options.small else language_searches(options),
        notes={
            "data": f"TOFU, {what}" + (" (the last 8 authors)" if options.small else ""),
            "model": "tiny causal model over words" if options.small else options.model,
            "initialisation": initialisation,
        },
        given=given_for,
        has_tokens=True,
    )


def initial_model(options: AuthorOptions, data: str | None) -> Any:
    """Return the model before fine-tuning."""
    return words_of(options, data).make()


TOFU = Definition(
    name="tofu",
    summary="Questions about 200 fictitious authors, any causal language model; forget 1, 5 or 10% of the authors.",
    build=lambda options, data: benchmark_of("tofu", options, data, load, f"{options.forget}"),
    options=TofuOptions,
    only_split=("forget", "adjacent", "asked"),
)
