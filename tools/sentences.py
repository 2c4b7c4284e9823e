"""Write the numbers of sentences from `results/`: `python tools/sentences.py`; `--check` writes nothing.

The files `sentences_about*.py` hold the sentences: a phrase as the page has it, with `{}` where a number stands, and
the values from the committed data. Every phrase must be on its page once. `page_tables.py` makes the tables, which are
checked.

Numbers of a page that neither a sentence nor a table covers are in `numbers-by-hand.txt`, with the words around them:
settings, sizes, the history of experiments, and results that nobody has written a sentence for yet. `--by-hand` writes
that list anew. A test compares it with the pages, so a number that is typed into a page, or changed there, is noticed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from places import ROOT

BY_HAND = ROOT / "tools" / "numbers-by-hand.txt"
# The pages that state results of ours.
NAMES = (
    "results",
    "tuning",
    "what-we-tried",
    "what-we-tried-unweave",
    "strangers",
    "strangers-development",
    "speed",
    "engine",
    "processes",
    "record",
    "safety",
    "step-by-step",
)
OF_RESULTS = tuple(f"docs/results/{path.name}" for path in sorted((ROOT / "docs" / "results").glob("*.md")))
PAGES = ("README.md", *(f"docs/{name}.md" for name in NAMES), *OF_RESULTS)
RESULT_PAGES = "docs/results"  # as the page of a sentence: one of docs/results.md and docs/results/*.md
NUMBER = re.compile(r"(?<![\w.])(?<![A-Za-z]-)[-−+]?\d(?:[\d,]*\d)?(?:\.\d+)?")
FIELD = re.compile(r"\{[^}]*\}")
# What is not looked at: code, generated parts, the targets of links, comments.
NO_TEXT = re.compile(
    r"```.*?```|^    .*?$|<!-- (?!end)[^>]*-->\n.*?<!-- end -->|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.S | re.M
)
AROUND = 25  # characters on either side of a number typed by hand


class Sentence(NamedTuple):
    """A phrase of a page with `{}` where its numbers stand, and their values.

    The page may be `RESULT_PAGES`. Then the phrase is on one of these pages.
    """

    page: str
    phrase: str
    values: Sequence[float]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The phrase with any numbers, wherever its lines are broken."""
        texts = [r"\s+".join(map(re.escape, re.split(r"\s+", text))) for text in FIELD.split(self.phrase)]
        return re.compile(f"({NUMBER.pattern})".join(texts))

    def find(self, text: str) -> re.Match[str]:
        """Return where the phrase is on its page; raise an error if it is not there once."""
        found = list(self.pattern.finditer(text))
        if len(found) != 1:
            raise ValueError(f"{self.page} has the phrase {self.phrase!r} {len(found)} times, but needs it once.")
        return found[0]

    def numbers(self) -> list[str]:
        """Return the numbers as the page should have them."""
        fields = FIELD.findall(self.phrase)
        return [
            field.format(value) for field, value in zip(fields, self.values, strict=True)
        ]  # ties as tables have them


def filled(text: str, sentences: Sequence[Sentence]) -> str:
    """Return the text of a page with the numbers of these sentences from the data."""
    for sentence in sentences:
        found = sentence.find(text)
        numbers = sentence.numbers()
        for place in reversed(_groups(found)):
            text = text[: found.start(place)] + numbers[place - 1] + text[found.end(place) :]
    return text


def by_hand(page: str, text: str, sentences: Sequence[Sentence], tables: Sequence[str] = ()) -> Iterator[str]:
    """Yield every number of a page that neither a sentence nor a generated table covers, with the words around it."""
    covered = [found.span(place) for found in (one.find(text) for one in sentences) for place in _groups(found)]
    covered += [found.span() for found in NO_TEXT.finditer(text)]
    covered += [(start, start + len(table)) for table in tables if (start := text.find(table)) >= 0]
    for found in NUMBER.finditer(text):
        if any(start <= found.start() < end for start, end in covered):
            continue
        before, after = text[: found.start()], text[found.end() :]
        words = f"{' '.join(before.split())[-AROUND:]}[{found[0]}]{' '.join(after[: 2 * AROUND].split())[:AROUND]}"
        yield f"{page}: {words}"


def _groups(found: re.Match[str]) -> range:
    return range(1, 1 + len(found.groups()))


def of_page(page: str) -> tuple[str, list[Sentence]]:
    """Return the text of a page, and its sentences."""
    from sentences_about import sentences

    text = _text(page)
    return text, [sentence for sentence in sentences() if _page_of(sentence) == page]


@cache
def _page_of(sentence: Sentence) -> str:
    """Return the page of a sentence. Raise an error unless a sentence of the results is on one of their pages."""
    if sentence.page != RESULT_PAGES:
        return sentence.page
    found = [page for page in ("docs/results.md", *OF_RESULTS) if sentence.pattern.search(_text(page))]
    if len(found) != 1:
        raise ValueError(f"{len(found)} pages of the results have the phrase {sentence.phrase!r}, but one must.")
    return found[0]


def _text(page: str) -> str:
    path = ROOT / page
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or check them."""
    from page_tables import tables_of

    parser = argparse.ArgumentParser(description="Write the numbers of sentences from results/.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which pages differ from the data")
    parser.add_argument("--by-hand", action="store_true", help="write the list of numbers that no sentence covers")
    words = parser.parse_args(arguments)
    lines, wrong = [], []
    for page in PAGES:
        text, sentences = of_page(page)
        if (new := filled(text, sentences)) != text:
            wrong.append(page)
            if not words.check:
                (ROOT / page).write_text(new, encoding="utf-8")
        tables = tables_of(page)
        missing = [table.partition("\n")[0] for table in tables if table not in new]
        wrong += [f"{page} (the table {head!r})" for head in missing]
        lines += by_hand(page, new, sentences, tables)
    if words.by_hand:
        BY_HAND.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{'Differ' if words.check else 'Written'}: {', '.join(wrong) or 'no page'}. By hand: {len(lines)} numbers.")
    return bool(wrong) and words.check


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for `bench`
    sys.exit(main())
