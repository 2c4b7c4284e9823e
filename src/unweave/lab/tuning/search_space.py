"""What is tried of a method on a benchmark: its search space around the benchmark's own values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study import REFERENCES, can_be_tuned
from unweave.methods import all_methods, find_method
from unweave.settings import Choices, Span

DEFAULT, PAPER, SEARCHED = "default", "paper", "searched"


@dataclass(frozen=True, kw_only=True)
class Space:
    """A method's settings on a benchmark (``default``), those that are searched, and the printed ones, if they differ.

    The first trial is the default; the second is what the paper prints, if that is something else.
    """

    method: str
    default: Mapping[str, Any]
    searched: Mapping[str, Span | Choices]
    printed: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, benchmark: Benchmark, name: str, *, goal: str) -> Space:
        """Return the space of a method. A method that has a setting ``goal`` is told the goal."""
        method = benchmark.method(name)
        told = {"goal": goal} if "goal" in {row["name"] for row in method.describe()} else {}
        default, *printed = (
            method.configure(benchmark.settings_for(method, profile), told, profile=profile).to_dict()
            for profile in (None, *(profile for profile in method.profiles if profile == PAPER))
        )
        spaces = {setting: search.about(default[setting]) for setting, search in method.searched().items()}
        return cls(
            method=name,
            default=default,
            searched=spaces,
            printed=printed[0] if printed and printed[0] != default else None,
        )

    def fixed(self, number: int) -> str:
        """Return what a trial is: the default, the printed values, or searched.

        >>> some = Space(method="ga", default={"epochs": 3}, searched={}, printed={"epochs": 5})
        >>> [some.fixed(number) for number in range(3)]
        ['default', 'paper', 'searched']
        """
        return {0: DEFAULT, 1: PAPER if self.printed else SEARCHED}.get(number, SEARCHED)

    def settings(self, origin: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a trial, given the values that were found for those searched."""
        return dict(self.printed or {}) if origin == PAPER else {**self.default, **found}

    def as_kept(self) -> dict[str, Any]:
        """Return it as the plain data that a storage keeps of it, to be compared."""
        kept: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return kept


def tuned_methods(names: Sequence[str]) -> list[str]:
    """Return the methods that are tuned: those named, or ``all`` that have something to choose.

    >>> tuned_methods(["retrain"])
    Traceback (most recent call last):
    unweave.errors.UsageError: retrain has nothing to tune: it is what the others are measured against.
    """
    known = all_methods()
    if not names:
        raise UsageError("Name at least one method to tune: names from `unweave methods`, or all.")
    if list(names) == ["all"]:
        return [name for name, method in known.items() if can_be_tuned(method)]
    for name in names:
        if name in REFERENCES:
            raise UsageError(f"{name} has nothing to tune: it is what the others are measured against.")
        if not find_method(name).searched():
            raise UsageError(f"{name} declares no search space. Give its settings one: setting(…, search=Around(30)).")
    return list(dict.fromkeys(names))
