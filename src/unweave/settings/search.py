"""Search spaces: where tuning looks for the value of a setting. They are declared beside it, in `setting`.

A space is laid around the value that the setting has on a benchmark, and always holds it.

>>> Around(30).about(0.001)
Span(low=3.333e-05, high=0.03, log=True)
>>> Multiples(0.5, 1, 2).about(7)
Choices(values=(4, 7, 14))
>>> OneOf(2.0, 4.0).about(1.0)
Choices(values=(2.0, 4.0, 1.0))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Span:
    """Every number between two, equally likely on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = True


@dataclass(frozen=True)
class Choices:
    """A few values."""

    values: tuple[Any, ...]


class Search(Protocol):
    """What `setting` takes: a space around a value; its text is for people."""

    def about(self, value: Any) -> Span | Choices:
        """Return the space around the value that the setting has on a benchmark."""
        ...


@dataclass(frozen=True)
class Around:
    """From the value divided by a factor to the value times it, on a logarithmic scale. For step sizes."""

    factor: float

    def about(self, value: float) -> Span | Choices:
        """Return the space around a positive value; what is switched off by 0 stays so."""
        if value == 0:
            return Choices((value,))
        return Span(float(f"{value / self.factor:.4g}"), float(f"{value * self.factor:.4g}"))

    def __str__(self) -> str:
        return f"1/{self.factor:g} to {self.factor:g} times the benchmark's value, logarithmic"


@dataclass(frozen=True)
class Between:
    """Numbers between two that the literature has, on a logarithmic scale; a value outside widens it."""

    low: float
    high: float

    def about(self, value: float) -> Span | Choices:
        """Return the space, with the value in it; what is switched off by 0 stays so."""
        if value == 0:
            return Choices((value,))
        return Span(min(self.low, value), max(self.high, value))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, logarithmic"


class OneOf:
    """Some values that the literature has, and the benchmark's own."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def about(self, value: Any) -> Choices:
        """Return the values, with this one among them."""
        return Choices(tuple(dict.fromkeys([*self.values, value])))

    def __str__(self) -> str:
        return " or ".join(map(str, self.values))


class Multiples:
    """A whole number of the benchmark's, times a few factors. For epochs."""

    def __init__(self, *factors: float) -> None:
        self.factors = factors

    def about(self, value: int) -> Choices:
        """Return the multiples, at least 1, with the value among them."""
        return Choices(tuple(sorted({max(1, round(value * factor)) for factor in self.factors} | {value})))

    def __str__(self) -> str:
        return f"{' or '.join(f'{factor:g}' for factor in self.factors)} times the benchmark's value"
