"""The numbers in sentences of README and docs are those of the data, and one that is typed by hand is on a list."""

from __future__ import annotations

import functools
import importlib
import re

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="a source distribution holds no results")


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("sentences")


@pytest.fixture(scope="module")
def tables():
    """Return the generated tables of a page; they are computed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield functools.cache(importlib.import_module("page_tables").tables_of)


def pages(tool):
    return [page for page in tool.PAGES if (ROOT / page).exists()]


def test_sentences_have_the_numbers_of_the_data(tool):
    wrong = []
    for page in pages(tool):
        text, sentences = tool.of_page(page)
        for sentence in sentences:
            there, right = list(sentence.find(text).groups()), sentence.numbers()
            wrong += [(sentence.phrase, there, right)] if there != right else []
    assert wrong == [], "run `python tools/sentences.py`"


def test_the_pages_hold_the_generated_tables(tables, tool):
    assert {page for page in pages(tool) if tables(page)} >= {"README.md", "docs/results.md", "docs/tuning.md"}
    for page in pages(tool):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [table.partition("\n")[0] for table in tables(page) if table not in text] == [], page


def test_a_new_table_takes_the_place_of_the_one_with_the_same_heading(tool):
    placed = importlib.import_module("speed_page").placed
    page = "Words.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nMore."
    assert placed(page, "| a | b |\n| --- | --- |\n| 3 | 4 |\n| 5 | 6 |") == page.replace("1 | 2", "3 | 4 |\n| 5 | 6")
    assert placed(page, "| a | c |\n| --- | --- |") is None


def test_every_other_number_is_on_the_list(tables, tool):
    found = [line for page in pages(tool) for line in tool.by_hand(page, *tool.of_page(page), tables(page))]
    listed = tool.BY_HAND.read_text(encoding="utf-8").splitlines()
    assert [line for line in found if line not in set(listed)] == [], "a number that no data gives"
    assert [line for line in listed if line not in set(found)] == [], "run `python tools/sentences.py --by-hand`"


def test_a_number_that_parts_from_the_data_is_seen_and_mended(tool):
    sentence = tool.Sentence("page", "it keeps {:.1f} ± {:.1f} points and takes {:,.0f}", (1.25, 0.06, 109036))
    text = "Here it keeps 1.3 ± 0.1\n  points and takes 5. With 3 seeds."
    assert list(sentence.find(text).groups()) == ["1.3", "0.1", "5"]
    assert tool.filled(text, [sentence]) == "Here it keeps 1.2 ± 0.1\n  points and takes 109,036. With 3 seeds."
    with pytest.raises(ValueError, match="0 times"):
        sentence.find("it keeps nothing")


def test_only_sentences_are_looked_at_for_numbers_by_hand(tool):
    text = "A 5 and −0.2 on ResNet-18, `x=7` [a 12](a3.md).\n\n| 1 | 2 |\n| 3 |\n    run 8\n"
    text += "<!-- made -->\n 9 \n<!-- end -->\nLast 4."
    found = [re.findall(r"\[([−\d.]+)\]", line)[0] for line in tool.by_hand("page", text, [], ["| 1 | 2 |"])]
    assert found == ["5", "−0.2", "12", "3", "4"]
    covered = tool.Sentence("page", "Last {:d}.", (4,))
    assert len(list(tool.by_hand("page", text, [covered], ["| 1 | 2 |"]))) == 4
