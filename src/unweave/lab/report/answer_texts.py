"""What the language models of a study write, for the page: question, truth, and the answers before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unweave.lab.report.results import Group, Results

SHOWN = 100  # questions of a group of data on the page, evenly spread
MOST_TEXT = 4_000_000  # characters of all answers together, so that the page can still be mailed


def answer_texts(results: Results, groups: Sequence[Group]) -> dict[str, Any] | None:
    """Return the questions of the first seed with answers, and what each group writes; None if no model was asked."""
    seed = min((seed for said in results.said.values() for seed in said), default=None)
    if seed is None:
        return None
    there = {number: results.said.get(group, {}).get(seed, {}) for number, group in enumerate(groups)}
    asked = _asked(next(filter(None, there.values())))
    alike = {number: texts for number, texts in there.items() if texts and _asked(texts) == asked}
    most = _most(alike)
    places = {subset: _spread(len(questions), most) for subset, (questions, _) in asked.items()}
    return {
        "seed": seed,
        "subsets": {
            subset: {
                "questions": _at(places[subset], questions),
                "truths": _at(places[subset], truths),
                "all": len(questions),
            }
            for subset, (questions, truths) in asked.items()
        },
        "said": {
            number: {subset: _at(places[subset], texts[subset]["written"]) for subset in asked}
            for number, texts in alike.items()
        },
    }


def _at(places: Sequence[int], texts: Sequence[str]) -> list[str]:
    return [texts[place] for place in places]


def _asked(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {subset: (one["questions"], one["answers"]) for subset, one in texts.items()}


def _most(said: Mapping[int, Any]) -> int:
    """Return how many questions of each subset fit on the page."""
    lengths = [len(text) for texts in said.values() for one in texts.values() for text in one["written"]]
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    subsets = max(len(texts) for texts in said.values())
    return max(1, min(SHOWN, int(MOST_TEXT / (mean * len(said) * subsets))))


def _spread(count: int, most: int) -> list[int]:
    """Return at most so many places, evenly spread.

    >>> _spread(10, 4), _spread(2, 4)
    ([0, 2, 5, 7], [0, 1])
    """
    shown = min(count, most)
    return [number * count // shown for number in range(shown)]
