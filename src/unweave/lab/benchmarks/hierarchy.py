"""Class hierarchies: tables of classes and of the superclasses that models are trained on."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

import numpy as np

from unweave.errors import unknown


@dataclass(frozen=True)
class Hierarchy:
    """The fine classes of a data set, in the order of their labels, and the superclass of each."""

    codes: tuple[str, ...]  # the data set's name for each: a number, or a WordNet code
    classes: tuple[str, ...]
    superclasses: tuple[str, ...]  # in the order of their labels
    parent: tuple[int, ...]  # the superclass of every class

    @classmethod
    def load(cls, name: str) -> Hierarchy:
        """Read a table of the package, with the columns class, name and superclass.

        >>> fish = Hierarchy.load("cifar100").members("fish")
        >>> fish
        ('aquarium_fish', 'flatfish', 'ray', 'shark', 'trout')
        """
        text = resources.files("unweave.lab.benchmarks").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        rows = list(csv.DictReader(lines))
        order = _order(text) or tuple(sorted({row["superclass"] for row in rows}))
        return cls(
            codes=tuple(row["class"] for row in rows),
            classes=tuple(row["name"] for row in rows),
            superclasses=order,
            parent=tuple(order.index(row["superclass"]) for row in rows),
        )

    def number(self, name: str) -> int:
        """Return the label of a class."""
        if name not in self.classes:
            raise unknown("class", name, self.classes)
        return self.classes.index(name)

    def members(self, superclass: str) -> tuple[str, ...]:
        """Return the classes of a superclass."""
        if superclass not in self.superclasses:
            raise unknown("superclass", superclass, self.superclasses)
        wanted = self.superclasses.index(superclass)
        return tuple(name for name, parent in zip(self.classes, self.parent, strict=True) if parent == wanted)

    def labels(self, fine: np.ndarray) -> np.ndarray:
        """Return the superclass of every fine label."""
        found: np.ndarray = np.asarray(self.parent)[fine]
        return found


def _order(text: str) -> tuple[str, ...]:
    """Return the superclasses in the order of the line ``# order: a, b``; empty if there is none."""
    for line in text.splitlines():
        if line.startswith("# order:"):
            return tuple(word.strip() for word in line.removeprefix("# order:").split(","))
    return ()
