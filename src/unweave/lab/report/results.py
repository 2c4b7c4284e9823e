"""The content of a study's folder as plain values: the table, histories, distributions, failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from unweave.errors import UsageError
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.report.measures import Place, Spread, default_direction
from unweave.methods import find_method

REFERENCES = ("original", "retrain")


class Value(NamedTuple):
    """One value of one seed, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class Group(NamedTuple):
    """Runs that differ only in their seed: one row of a table."""

    method: str
    profile: str
    variant: str

    @property
    def is_reference(self) -> bool:
        """Whether it is a reference (the original or retraining), not an unlearning method."""
        return self.method in REFERENCES and not self.variant

    @property
    def differences(self) -> dict[str, str]:
        """The settings of the variant.

        >>> Group("two-stage", "released", "alpha=0 adjacency=neighbours").differences
        {'alpha': '0', 'adjacency': 'neighbours'}
        >>> Group("salun", "official", "objective=random labels epochs=3").differences
        {'objective': 'random labels', 'epochs': '3'}
        """
        found: dict[str, str] = {}
        for word in self.variant.split():
            name, is_setting, value = word.partition("=")
            if is_setting or not found:
                found[name] = value
            else:  # a value of several words
                found[list(found)[-1]] += f" {word}"
        return found


def label(group: Group, among: Iterable[Group]) -> str:
    """Return a group's name: its method, its profile if the method has several here, and its variant.

    >>> tuned, other = Group("ft", "tuned", ""), Group("ft", "official", "epochs=3")
    >>> label(tuned, [tuned]), label(tuned, [tuned, other]), label(other, [tuned, other])
    ('ft', 'ft tuned', 'ft official epochs=3')
    """
    profiles = {other.profile for other in among if other.method == group.method and other.profile}
    return " ".join(filter(None, (group.method, group.profile if len(profiles) > 1 else "", group.variant)))


class Failure(NamedTuple):
    """A cell that failed, and its error."""

    group: Group
    seed: int
    error: str


Values = dict[Place, dict[int, Value]]
Distribution = dict[str, dict[str, dict[str, list[float]]]]


@dataclass
class Results:
    """The content of a study. Groups are in reading order: the original, retraining, then the methods."""

    folder: Path
    about: dict[str, Any]
    values: dict[Group, Values] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    histories: dict[Group, dict[int, list[dict[str, Any]]]] = field(default_factory=dict)
    distributions: dict[Group, dict[int, Distribution]] = field(default_factory=dict)
    directions: dict[Place, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[Group, dict[str, Any]] = field(default_factory=dict)
    stages: dict[Group, dict[int, dict[str, Any]]] = field(default_factory=dict)
    said: dict[Group, dict[int, dict[str, Any]]] = field(default_factory=dict)  # questions, answers, what is written
    notes: dict[str, str] = field(default_factory=dict)
    at_once: int = 1  # the most cells that one command ran at once; several commands may have run side by side

    @property
    def sharing(self) -> str:
        """A warning for readers of times if cells shared the machine; else empty."""
        if self.at_once == 1:
            return ""
        return f"Up to {self.at_once} cells ran at once and shared the machine, so each took longer than it does alone."

    @property
    def caution(self) -> str:
        """A warning for readers of any number if the study was a trial with --small; else empty."""
        if not self.options.get("small"):
            return ""
        return "A trial with --small: its numbers mean nothing, they only show that everything runs."

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return str(self.about["benchmark"])

    @property
    def options(self) -> dict[str, Any]:
        """The benchmark's options that differ from their default."""
        return dict(self.about.get("options", {}))

    @property
    def benchmark(self) -> str:
        """The benchmark's name with its options, as in headings."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    def setting(self, group: Group, name: str) -> Any:
        """Return the value that a setting, or the adjacency, had in a group's runs; None if it is unknown.

        A folder of published numbers has no runs. Then the value is that of the variant, or the benchmark's default.
        """
        if name == "adjacency":
            return group.differences.get(name, "classes")
        known = self.settings.get(group) or {**default_settings(self, group), **group.differences}
        return known.get(name)

    @property
    def groups(self) -> list[Group]:
        """Every group, also those whose cells all failed."""
        known = [*self.values, *(failure.group for failure in self.failures)]
        rank = {name: number for number, name in enumerate(REFERENCES)}
        return sorted(dict.fromkeys(known), key=lambda group: rank.get(group.method, len(rank)))

    @property
    def seeds(self) -> list[int]:
        """Every seed with a value."""
        return sorted({seed for places in self.values.values() for found in places.values() for seed in found})

    def label(self, group: Group) -> str:
        """Return the group's name in this study."""
        return label(group, self.groups)

    def value(self, group: Group | None, place: Place, seed: int) -> float | None:
        """Return what one run measured, or None."""
        found = self.values.get(group, {}).get(place, {}).get(seed) if group else None
        return None if found is None else found.value

    def is_extra(self, group: Group) -> bool:
        """Tell whether it is a variant of a method that also ran without one. Such groups do not compete."""
        return bool(group.variant) and any(other.method == group.method and not other.variant for other in self.groups)

    def seeds_of(self, group: Group) -> list[int]:
        """Return the seeds of a group with a value."""
        return sorted({seed for found in self.values.get(group, {}).values() for seed in found})

    def failures_of(self, group: Group) -> list[Failure]:
        """Return the failed cells of a group."""
        return [failure for failure in self.failures if failure.group == group]

    def places(self) -> list[Place]:
        """Return every place with a value, in the order of the table."""
        return list(dict.fromkeys(place for places in self.values.values() for place in places))

    def spread(self, group: Group | None, place: Place) -> Spread | None:
        """Return mean and deviation over the seeds, or None if nothing was measured."""
        found = self.values.get(group, {}).get(place) if group else None
        return Spread.of([value.value for value in found.values()]) if found else None

    def mean(self, group: Group | None, place: Place) -> float | None:
        """Return the mean over the seeds, or None if nothing was measured."""
        spread = self.spread(group, place)
        return spread.mean if spread else None

    def reference(self, method: str) -> Group | None:
        """Return the group of a reference (original or retrain), or None if the study has no values of it."""
        return next((group for group in self.values if group.method == method and group.is_reference), None)

    def direction(self, place: Place) -> str:
        """Return which direction is better: lower, higher, reference (nearest to retraining), or empty."""
        return self.directions.get(place) or default_direction(place)


def default_settings(results: Results, group: Group) -> dict[str, Any]:
    """Return the settings of a group's method and profile in this benchmark; empty if they are unknown."""
    try:
        benchmark, method = find_benchmark(results.name, options=results.options), find_method(group.method)
        profile = group.profile or None
        return method.configure(benchmark.settings_for(method, profile), profile=profile).to_dict()
    except UsageError:
        return {}
