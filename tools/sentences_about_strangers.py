"""The sentences at the top of `docs/strangers.md`, from the second look at the judgement half."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.strangers.oracle import regrets

from places import RESULTS
from sentences import Sentence


def strangers() -> Iterator[Sentence]:
    """Yield the sentences."""
    rows = [json.loads(line) for line in (RESULTS / "strangers" / "judged.jsonl").read_text("utf-8").splitlines()]
    cells = [row for row in rows if row["method"] is None]
    yield _said(
        "at most {:.1f}% of the forget training samples", max(100 * cell["after"]["train forget"] for cell in cells)
    )
    lost = {
        kept: [100 * (cell["before"][f"test {kept}"] - cell["after"][f"test {kept}"]) for cell in cells]
        for kept in ("adjacent", "remote")
    }
    yield _said(
        "rises by {:.1f} points in the median, and falls by {:.1f} at worst",
        -median(lost["adjacent"]),
        max(lost["adjacent"]),
    )
    yield _said("falls by {:.1f} points in the median and {:.1f} at worst", median(lost["remote"]), max(lost["remote"]))
    shares = [cell["share"] for cell in cells]
    yield _said(
        "takes {:.2f} of the sample gradients of training in the median, {:.2f} at most", median(shares), max(shares)
    )
    yield from _regret(rows)


def _regret(rows: list[dict[str, Any]]) -> Iterator[Sentence]:
    methods = sorted({row["method"] for row in rows if row["method"]})
    tasks = dict.fromkeys(row["task"] for row in rows)
    found = [one for task in tasks for one in regrets([row for row in rows if row["task"] == task], methods)]
    for kept, phrase in (
        ("adjacent", "keeps {:.1f} points more adjacent accuracy in the median and {:.1f} at worst"),
        ("remote", "within its limits of 1 and 6: {:.1f} and {:.1f}"),
    ):
        some = [one[kept] for one in found if kept in one]
        yield _said(phrase, median(some), max(some))


def _said(phrase: str, *numbers: float) -> Sentence:
    return Sentence("docs/strangers.md", phrase, numbers)
