"""The colour and shape of each method: the same in every figure, on every page and in every study."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from unweave.lab.report.results import REFERENCES, Group

INK, GREY = "#333333", "#767676"
# Okabe and Ito's colours without yellow, which is hard to see on white paper.
BLUE, RED, GREEN, PINK, SKY, ORANGE = PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PAGE_MARKERS = {
    "o": "circle",
    "s": "rect",
    "^": "triangle",
    "D": "rectRot",
    "v": "triangle",
    "P": "cross",
    "X": "crossRot",
    "*": "star",
    "h": "circle",
}
# No two methods look alike. A study often compares methods of one block, so neighbours differ in colour and shape.
LOOKS = {
    "original": (INK, "*"),
    "retrain": (INK, "h"),
    "adaptive": (BLUE, "o"),
    "unweave": (ORANGE, "v"),
    "two-stage": (SKY, "D"),
    "pgd": (BLUE, "X"),
    "ft": (RED, "s"),
    "ga": (GREEN, "^"),
    "gdr": (GREEN, "s"),
    "l1-sparse": (SKY, "v"),
    "scrub": (PINK, "D"),
    "ssd": (PINK, "^"),
    "salun": (RED, "o"),
    "delete": (GREEN, "o"),
    "munba": (ORANGE, "P"),
    "grad-diff": (RED, "^"),
    "npo": (ORANGE, "o"),
    "simnpo": (ORANGE, "D"),
    "dpo": (PINK, "o"),
    "idk-dpo": (PINK, "v"),
    "altpo": (PINK, "s"),
    "rmu": (GREEN, "X"),
    "undial": (SKY, "s"),
    "ce-u": (RED, "P"),
    "wga": (BLUE, "^"),
    "satimp": (SKY, "X"),
    "pdu": (BLUE, "s"),
}
SPARE = tuple(pair for pair in product(PALETTE, MARKERS) if pair not in LOOKS.values())


class Appearance(NamedTuple):
    """A colour, a marker in matplotlib's letters, and whether it is hollow."""

    colour: str
    marker: str
    hollow: bool


def looks(groups: Sequence[Group]) -> dict[Group, Appearance]:
    """Return the look of every group: that of its method in `LOOKS`.

    References are hollow. So are a method's further profiles and its variants, whose names tell them apart. Methods of
    other packages share the looks that are left, in the order of their names.

    >>> [look.marker for look in looks([Group("original", "", ""), Group("ft", "", "")]).values()]
    ['*', 's']
    """
    others = sorted({group.method for group in groups} - LOOKS.keys())
    known = LOOKS | {name: SPARE[number % len(SPARE)] for number, name in enumerate(others)}
    found: dict[Group, Appearance] = {}
    for group in groups:
        first = next(one for one in groups if one.method == group.method and not (one.variant and not group.variant))
        hollow = group.method in REFERENCES or bool(group.variant) or group != first
        found[group] = Appearance(*known[group.method], hollow)
    return found
