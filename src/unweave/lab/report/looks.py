"""The colour and marker of each method, the same in every figure and on the page; markers alone tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unweave.lab.report.results import Group

INK, GREY = "#333333", "#767676"
# Okabe and Ito's colours without yellow, which is hard to see on white paper.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PAGE_MARKERS = {
    "o": "circle",
    "s": "rect",
    "^": "triangle",
    "D": "rectRot",
    "v": "triangle",
    "P": "cross",
    "X": "crossRot",
}
REFERENCE_MARKERS = {"original": "*", "retrain": "h"}


class Appearance(NamedTuple):
    """A colour, a marker in matplotlib's letters, and whether it is hollow."""

    colour: str
    marker: str
    hollow: bool


def looks(groups: Sequence[Group]) -> dict[Group, Appearance]:
    """Return the look of every group: references are hollow and dark, methods take colours and markers in turn.

    >>> [look.marker for look in looks([Group("original", "", ""), Group("ft", "", "")]).values()]
    ['*', 'o']
    """
    found: dict[Group, Appearance] = {}
    number = 0
    for group in groups:
        if group.is_reference:
            found[group] = Appearance(INK, REFERENCE_MARKERS[group.method], True)
            continue
        colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        found[group] = Appearance(colour, marker, False)
        number += 1
    return found
