"""One rule says what a method did: the headline, the points and the legend cannot disagree."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave.lab.report import Group, Results
from unweave.lab.report.headline import verdict
from unweave.lab.report.measures import Place
from unweave.lab.report.results import Value
from unweave.lab.report.standings import RANKS, WORDS

ORIGINAL = (1.0, 0.95, 0.95)
SUBSETS = ("forget", "adjacent", "remote")
shares = st.integers(0, 100).map(lambda points: points / 100)
studies = st.dictionaries(st.sampled_from(["one", "two", "three", "four", "five"]), st.tuples(shares, shares, shares))


def results_of(methods):
    """Return results with these (forget, adjacent, remote) test accuracies, and the original's."""
    found = Results(folder=Path("study"), about={"benchmark": "b"})
    for name, accuracies in {"original": ORIGINAL, **methods}.items():
        places = {
            Place("test", subset, "accuracy"): {0: Value(one)} for subset, one in zip(SUBSETS, accuracies, strict=True)
        }
        found.values[Group(name, "", "")] = places
    return found


@settings(max_examples=150, deadline=None)
@given(studies.filter(bool))
def test_headline_points_and_standings_never_disagree(methods):
    results = results_of(methods)
    said = verdict(results)
    standing = {one.group.method: one for one in said.standings}
    assert standing.keys() == methods.keys()
    for name, (forget, *kept) in methods.items():
        lost = max(before - now for before, now in zip(ORIGINAL[1:], kept, strict=True))
        assert standing[name].forgets == (forget <= 0.05)
        assert standing[name].keeps == (lost < 0.0200001)
        assert (standing[name].keeping == "collapses") == (lost > 0.1000001)
    assert [one.rank for one in said.standings] == sorted(one.rank for one in said.standings)
    # Who forgets and keeps wins; who is named in the title did what the title says.
    both = [name for name, one in standing.items() if one.rank == 0]
    assert ("forgets and keeps" in said.title and not said.title.startswith("No")) == bool(both)
    assert not both or said.winner.method in both
    assert said.title.startswith("No method forgets and keeps") <= any(one.forgets for one in standing.values())
    assert (said.title.startswith("No method forgets:") or said.title == "No method forgets") <= all(
        not one.forgets for one in standing.values()
    )
    assert said.winner is None or not standing[said.winner.method].hardly
    # Every method but the winner is in exactly one point.
    points = [
        words for name, words in said.points if name not in ("Accuracy on kept data", "Against retraining", "Cost")
    ]
    winner = said.winner.method if said.winner else None
    for name in methods:
        named = sum(name in words.replace("(", " ").replace(",", " ").replace(":", " ").split() for words in points)
        assert named <= 2 if "Collapsed" in dict(said.points) else named == (name != winner)
        assert (named == 0) == (name == winner)


@pytest.mark.parametrize(("key", "words"), WORDS.items())
def test_every_standing_has_words_that_fit_its_sentence(key, words):
    """The title of a study of one method is its name and these words."""
    forget = {"forgets": 0.0, "forgets in part": 0.3, "hardly forgets": 0.9}[key[0]]
    kept = {"keeps": 0.95, "pays": 0.9, "collapses": 0.5}[key[1]]
    said = verdict(results_of({"one": (forget, kept, 0.95)}))
    (only,) = said.standings
    assert (only.words, only.rank) == (words, RANKS[key])
    if only.forgets:
        assert said.title == f"one {words}"


def test_what_was_kept_is_read_off_data_that_the_original_knows():
    """A language model recognises no test data, so a loss shows on training data alone."""
    found = Results(folder=Path("study"), about={"benchmark": "b"})
    numbers = {"original": (1.0, 1.0, 0.0), "rough": (0.5, 1.0, 0.0), "careful": (0.99, 0.99, 0.0)}
    for name, (adjacent, remote, unseen) in numbers.items():
        found.values[Group(name, "", "")] = {
            Place("train", "forget", "accuracy"): {0: Value(1.0 if name == "original" else 0.0)},
            Place("train", "adjacent", "accuracy"): {0: Value(adjacent)},
            Place("train", "remote", "accuracy"): {0: Value(remote)},
            Place("test", "remote", "accuracy"): {0: Value(unseen)},
        }
    standing = {one.group.method: one for one in verdict(found).standings}
    assert {name: one.keeping for name, one in standing.items()} == {"rough": "collapses", "careful": "keeps"}
    assert standing["rough"].worst == Place("train", "adjacent", "accuracy")
