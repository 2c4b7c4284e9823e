"""The search space of a method on a benchmark, around the benchmark's own values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study import REFERENCES, can_be_tuned
from unweave.methods import find_method, methods_for
from unweave.settings import Choices, Span

DEFAULT, PAPER, CLOSED_FORM, SEARCHED = "default", "paper", "closed-form", "searched"
WRITTEN = (DEFAULT, PAPER, CLOSED_FORM)  # settings that somebody wrote down: they are tried first, with every seed


@dataclass(frozen=True, kw_only=True)
class Space:
    """A method's default settings on a benchmark, its search space, and other settings to try first.

    The first trial takes the default settings. The next take the paper's, if they differ, and the closed form of a
    method whose default computes it otherwise, as its authors' code does.
    """

    method: str
    default: Mapping[str, Any]
    searched: Mapping[str, Span | Choices]
    printed: Mapping[str, Any] | None = None
    closed_form: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, benchmark: Benchmark, name: str, *, goal: str) -> Space:
        """Return the space of a method. If the method has a setting ``goal``, it gets the goal."""
        method = benchmark.method(name)
        told = {"goal": goal} if "goal" in {row["name"] for row in method.describe()} else {}

        def values(profile: str | None) -> dict[str, Any]:
            return method.configure(benchmark.settings_for(method, profile), told, profile=profile).to_dict()

        default = values(None)
        printed, closed_form = (values(name) if name in method.profiles else None for name in (PAPER, CLOSED_FORM))
        spaces = {setting: search.about(default[setting]) for setting, search in benchmark.searched(method).items()}
        return cls(
            method=name,
            default=default,
            searched=spaces,
            printed=printed if printed != default else None,
            closed_form=closed_form,
        )

    def fixed(self, number: int) -> str:
        """Return where a trial's settings come from: the default, the paper, the closed form or the search.

        >>> some = Space(method="ga", default={"epochs": 3}, searched={}, printed={"epochs": 5})
        >>> [some.fixed(number) for number in range(3)]
        ['default', 'paper', 'searched']
        """
        first = [DEFAULT, *([PAPER] if self.printed else []), *([CLOSED_FORM] if self.closed_form else [])]
        return first[number] if number < len(first) else SEARCHED

    def settings(self, origin: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a trial, given the values of the searched ones."""
        written = {PAPER: self.printed, CLOSED_FORM: self.closed_form}.get(origin)
        return {**self.default, **found} if written is None else dict(written)

    def as_kept(self) -> dict[str, Any]:
        """Return the space as plain JSON data, to compare it with the stored one."""
        kept: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        if self.closed_form is None:  # as folders of earlier versions keep it
            del kept["closed_form"]
        return kept


def tuned_methods(names: Sequence[str], *, tokens: bool = False) -> list[str]:
    """Return the methods to tune: those named, or for ``all`` every method that has settings to tune and fits.

    >>> tuned_methods(["retrain"])
    Traceback (most recent call last):
    unweave.errors.UsageError: retrain has nothing to tune: the others are measured against it.
    """
    if not names:
        raise UsageError("Name at least one method to tune: a name from `unweave methods`, or all.")
    if list(names) == ["all"]:
        return [name for name, method in methods_for(tokens=tokens).items() if can_be_tuned(method)]
    for name in names:
        if name in REFERENCES:
            raise UsageError(f"{name} has nothing to tune: the others are measured against it.")
        if not find_method(name).searched():
            raise UsageError(f"{name} declares no search space. Give its settings one: setting(…, search=Around(30)).")
    return list(dict.fromkeys(names))
