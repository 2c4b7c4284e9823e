"""Search spaces: the values of a setting that tuning tries. They are declared with the setting, in `setting`.

A space lies around the value that the setting has on a benchmark, and always contains that value.

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
    """All numbers from ``low`` to ``high``, drawn evenly on a logarithmic or a linear scale."""

    low: float
    high: float
    log: bool = True


@dataclass(frozen=True)
class Choices:
    """A list of values."""

    values: tuple[Any, ...]


class Search(Protocol):
    """A rule that gives the space around a value. Its ``str`` describes the rule to people."""

    def about(self, value: Any) -> Span | Choices:
        """Return the space around the value that the setting has on a benchmark."""
        ...


@dataclass(frozen=True)
class Around:
    """From the value divided by a factor to the value times the factor, on a logarithmic scale. For step sizes."""

    factor: float

    def about(self, value: float) -> Span | Choices:
        """Return the space around a positive value. A value of 0 means "off" and stays 0."""
        if value == 0:
            return Choices((value,))
        return Span(float(f"{value / self.factor:.4g}"), float(f"{value * self.factor:.4g}"))

    def __str__(self) -> str:
        return f"1/{self.factor:g} to {self.factor:g} times the benchmark's value, logarithmic"


@dataclass(frozen=True)
class Between:
    """Numbers between two values from the literature, on a logarithmic scale. A value outside widens the space."""

    low: float
    high: float

    def about(self, value: float) -> Span | Choices:
        """Return the space, which contains the value. A value of 0 means "off" and stays 0."""
        if value == 0:
            return Choices((value,))
        return Span(min(self.low, value), max(self.high, value))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, logarithmic"


class OneOf:
    """Values from the literature, and the benchmark's own value."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def about(self, value: Any) -> Choices:
        """Return the values, including this one."""
        return Choices(tuple(dict.fromkeys([*self.values, value])))

    def __str__(self) -> str:
        return " or ".join(map(str, self.values))


class Multiples:
    """The benchmark's whole number times a few factors. For epochs."""

    def __init__(self, *factors: float) -> None:
        self.factors = factors

    def about(self, value: int) -> Choices:
        """Return the multiples, each at least 1, including the value."""
        return Choices(tuple(sorted({max(1, round(value * factor)) for factor in self.factors} | {value})))

    def __str__(self) -> str:
        return f"{' or '.join(f'{factor:g}' for factor in self.factors)} times the benchmark's value"
