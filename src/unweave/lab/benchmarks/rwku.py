"""RWKU: make a language model forget a real person that it knows from its training, and keep who is near to them.

Jin et al., "RWKU: Benchmarking Real-World Knowledge Unlearning for Large Language Models" (NeurIPS 2024): 200 famous
people, with texts about each to forget by, and questions about each and about their neighbours to test with. The model
is taken as it is: there is no training set of its own, so no original is trained and no model can be retrained.

- forget: texts about the person (``passage.json``); the tests are blanks to fill in (level 1), questions (level 2) and
  questions that try to trick the model (level 3)
- adjacent: questions about every second neighbour of the person; the tests are those about the other neighbours
- remote: questions about other people of the data set; the tests are those about yet others

Nothing that is asked in a test is trained on. What is adjacent for training is ours: RWKU uses neighbours in tests
only.
A folder has one folder for each person, such as ``1_Stephen_King``, with JSON lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unweave.api import Split
from unweave.errors import UsageError
from unweave.lab.benchmarks import networks
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, Definition
from unweave.lab.benchmarks.own_task import OwnTask
from unweave.lab.benchmarks.tofu_data import AuthorOptions, Rows, Words, small_words, spread, words_of
from unweave.lab.benchmarks.tofu_settings import (
    given_for,
    language_searches,
    language_settings,
    recipe_of,
    small_language_settings,
)
from unweave.settings import setting
from unweave.storage import read_json

ABOUT = "Tell me about {subject}."
CLOZE = "Fill in the blank: {query}"
PROBES = ("forget_level1", "forget_level2")
SMALL_TEXTS, SMALL_WORDS, SMALL_PEOPLE = 12, 60, 4


@dataclass(frozen=True, kw_only=True)
class RwkuOptions(AuthorOptions):
    """The options of this benchmark. ``epochs`` and ``batch`` are for ``--small``, which trains its model."""

    rate: float = setting(1e-5, above=0, help="Step size of methods that fine-tune.")
    person: str = setting(
        "", help="Whom to forget: a folder's name, its number or the person's name. Empty: the first."
    )
    texts: int = setting(200, at_least=1, help="The most texts about the person.")
    people: int = setting(40, at_least=2, help="Of how many other people questions are remote, half of them in tests.")


def load(options: RwkuOptions, data: str | None, *, after: int = 0) -> BenchmarkTask:
    """Read the texts and questions. ``after`` takes a person so many places after the one that is named."""
    person, others = _person_and_others(options, data, after)
    words = small_words(_texts_of([person, *others])) if options.small else words_of(options, data)
    about = _brief(person) if options.small else texts_of(person)[: options.texts]
    near, far = _near(person), [[row for folder in others[start::2] for row in _probes(folder)] for start in (0, 1)]
    told, tricks = _probes(person), questions_of(person, "forget_level3")
    groups = {"forget": told, "adversarial": tricks, "adjacent": near[1], "remote": far[1]}
    return BenchmarkTask(
        development=None if after else lambda: load(options, data, after=1),
        train=_split(words, about, near[0], far[0]),
        test=_split(words, told + tricks, near[1], far[1]),
        label_names=(),
        questions={name: spread(rows, options.asked) for name, rows in groups.items()},
        rows=[*about, *near[0], *far[0]],
        wording=words,
    )


def _person_and_others(options: RwkuOptions, data: str | None, after: int) -> tuple[Path, list[Path]]:
    """Return the folder of the person to forget, and those of the others."""
    folders = people_of(data)
    if len(folders) < 3:
        raise UsageError(
            f"{folders[0].parent} has {len(folders)} people, but at least 3 are needed: two others are remote."
        )
    place = (_chosen(folders, options.person) + after) % len(folders)
    others = [*folders[place + 1 :], *folders[:place]]
    return folders[place], others[: SMALL_PEOPLE if options.small else options.people]


def _near(person: Path) -> list[Rows]:
    """Return the questions about every second neighbour, and those about the others."""
    every = [row for name in ("neighbor_level1", "neighbor_level2") for row in questions_of(person, name)]
    names = sorted({row["neighbor"] for row in every})
    return [[row for row in every if row["neighbor"] in names[start::2]] for start in (0, 1)]


def people_of(data: str | None) -> list[Path]:
    """Return the folders of the people, in the order of their numbers."""
    if data is None:
        raise UsageError(
            "This benchmark needs the data set RWKU: a folder with one folder for each person, such as 1_Stephen_King, "
            "as the repositories of RWKU and of PURGE have it. Pass --data DATA, a folder that holds RWKU/."
        )
    places = [Path(data) / name for name in ("RWKU", "rwku", "")]
    for place in places:
        found = [folder for folder in place.glob("*_*") if (folder / f"{PROBES[0]}.json").is_file()]
        if found:
            return sorted(found, key=lambda folder: (len(folder.name.split("_")[0]), folder.name))
    raise UsageError(f"No people of RWKU under {data}: expected folders such as {places[0] / '1_Stephen_King'}.")


def _chosen(folders: Sequence[Path], person: str) -> int:
    names = [folder.name for folder in folders]
    if not person:
        return 0
    wanted = person.replace(" ", "_")
    for place, name in enumerate(names):
        number, _, rest = name.partition("_")
        if wanted in (name, number, rest):
            return place
    raise UsageError(
        f"{folders[0].parent} has nobody called {person!r}. Give a folder's name, such as {names[0]}, its number, or "
        "the name in it."
    )


def texts_of(person: Path) -> Rows:
    """Return the texts about a person as answers to a request to tell about them."""
    return [
        {"question": ABOUT.format(subject=row["subject"]), "answer": row["text"]}
        for row in _entries(person / "passage.json", "subject", "text")
    ]


def _brief(person: Path) -> Rows:
    """Return a few short texts, which the tiny model can read."""
    return [{**row, "answer": " ".join(row["answer"].split()[:SMALL_WORDS])} for row in texts_of(person)[:SMALL_TEXTS]]


def questions_of(person: Path, name: str) -> Rows:
    """Return the questions of one file, with their answers; blanks are told to be filled in."""
    more = ("neighbor",) if name.startswith("neighbor") else ()
    return [
        {
            **{key: row[key] for key in more},
            "question": CLOZE.format(query=row["query"]) if row.get("type") == "cloze" else row["query"],
            "answer": row["answer"],
        }
        for row in _entries(person / f"{name}.json", "query", "answer", *more)
    ]


def _probes(person: Path) -> Rows:
    return [row for name in PROBES for row in questions_of(person, name)]


def _entries(file: Path, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON list, and raise unless each has texts under these keys."""
    if not file.is_file():
        raise UsageError(f"{file} is missing. Use a complete copy of RWKU.")
    found = read_json(file)
    if not isinstance(found, list) or not found:
        raise UsageError(f"{file} must hold a JSON list of objects.")
    for place, row in enumerate(found):
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) and row[key] for key in keys):
            raise UsageError(f"Entry {place} of {file} must be an object with the texts {', '.join(keys)}.")
    return found


def _split(words: Words, *parts: Rows) -> Split:
    ends = np.cumsum([0, *map(len, parts)])
    rows = [row for part in parts for row in part]
    return Split(words.tokens(rows), *(np.arange(*some) for some in pairwise(ends)))


def _texts_of(folders: Sequence[Path]) -> list[str]:
    """Return everything that is read of these people, for the words of the tiny tokenizer."""
    rows = [row for folder in folders for row in [*_brief(folder), *_probes(folder)]]
    names = ("neighbor_level1", "neighbor_level2", "forget_level3")
    rows += [row for folder in folders for name in names for row in questions_of(folder, name)]
    return [text for row in rows for text in (row["question"], row["answer"])]


def build(options: RwkuOptions, data: str | None) -> Benchmark:
    """Return the benchmark: with the given model as it is, or with ``--small`` a tiny one that is trained."""
    about: dict[str, Any] = {
        "name": "rwku",
        "load": partial(load, options, data),
        "recipe": recipe_of(options),
        "notes": {"data": "RWKU", "model": "tiny causal model over words" if options.small else options.model},
        "given": given_for,
        "has_tokens": True,
    }
    if options.small:
        return Benchmark(**about, model=partial(_tiny, options, data), settings=small_language_settings())
    model = partial(networks.causal_model, options.model, data)
    return OwnTask(
        **about,
        model=model,
        original=model,
        settings=language_settings(options),
        searches=language_searches(options),
    )


def _tiny(options: RwkuOptions, data: str | None) -> Any:
    return load(options, data).wording.make()


RWKU = Definition(
    name="rwku",
    summary="Real people whom a language model knows: forget one, keep their neighbours; the model is taken as it is.",
    build=build,
    options=RwkuOptions,
    only_split=("person", "texts", "people", "asked"),
)
