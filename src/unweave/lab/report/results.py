"""What a study's folder holds, read once and kept as plain values: the table, histories, distributions, failures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from unweave.errors import UsageError
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.packages import require_package
from unweave.lab.report.measures import COSTS, Place, Spread, default_direction
from unweave.lab.study import Store
from unweave.methods import find_method

REFERENCES = ("original", "retrain")
NEEDED = ("variant", "method", "profile", "seed", "split", "subset", "metric", "value")


class Value(NamedTuple):
    """One value of one seed, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class Group(NamedTuple):
    """The runs that differ in their seed only: one row of a table."""

    method: str
    profile: str
    variant: str

    @property
    def is_reference(self) -> bool:
        """Whether it is something to compare with (the original, retraining) rather than an unlearning method."""
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
    """Return a group's name: its method, its profile where there are several among the others, and its variant.

    >>> tuned, other = Group("ft", "tuned", ""), Group("ft", "official", "epochs=3")
    >>> label(tuned, [tuned]), label(tuned, [tuned, other]), label(other, [tuned, other])
    ('ft', 'ft tuned', 'ft official epochs=3')
    """
    profiles = {other.profile for other in among if other.method == group.method and other.profile}
    return " ".join(filter(None, (group.method, group.profile if len(profiles) > 1 else "", group.variant)))


class Failure(NamedTuple):
    """A cell that failed, and what it said."""

    group: Group
    seed: int
    error: str


Values = dict[Place, dict[int, Value]]
Distribution = dict[str, dict[str, dict[str, list[float]]]]


@dataclass
class Results:
    """A study, in the order in which a person reads it: the original, retraining, then the methods."""

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
    notes: dict[str, str] = field(default_factory=dict)
    at_once: int = 1  # how many cells of a start shared the machine, at most; several starts may have been side by side

    @property
    def sharing(self) -> str:
        """What a reader of times must know, where cells shared the machine; else empty."""
        if self.at_once == 1:
            return ""
        return f"Up to {self.at_once} cells of a start ran at once and shared the machine: alone, each takes less time."

    @property
    def caution(self) -> str:
        """What a reader of any number must know, where the benchmark was only tried; else empty."""
        if not self.options.get("small"):
            return ""
        return "A trial with --small: its numbers mean nothing but that everything runs."

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
        """The benchmark's name with its options, for a heading."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    def setting(self, group: Group, name: str) -> Any:
        """Return the value that a setting, or the adjacency, had in a group's runs; None where nobody knows it.

        A folder of published numbers has no runs: there the variant says it, or else the default of the benchmark.
        """
        if name == "adjacency":
            return group.differences.get(name, "classes")
        known = self.settings.get(group) or {**default_settings(self, group), **group.differences}
        return known.get(name)

    @property
    def groups(self) -> list[Group]:
        """Every group, those of which every cell failed included."""
        known = [*self.values, *(failure.group for failure in self.failures)]
        rank = {name: number for number, name in enumerate(REFERENCES)}
        return sorted(dict.fromkeys(known), key=lambda group: rank.get(group.method, len(rank)))

    @property
    def seeds(self) -> list[int]:
        """Every seed that has a value."""
        return sorted({seed for places in self.values.values() for found in places.values() for seed in found})

    def label(self, group: Group) -> str:
        """Return the group's name in this study."""
        return label(group, self.groups)

    def value(self, group: Group | None, place: Place, seed: int) -> float | None:
        """Return what one run measured, or None."""
        found = self.values.get(group, {}).get(place, {}).get(seed) if group else None
        return None if found is None else found.value

    def is_extra(self, group: Group) -> bool:
        """Tell whether it is a variant of a method that the study also ran as it is: no rival of the other methods."""
        return bool(group.variant) and any(other.method == group.method and not other.variant for other in self.groups)

    def seeds_of(self, group: Group) -> list[int]:
        """Return the seeds of a group that have a value."""
        return sorted({seed for found in self.values.get(group, {}).values() for seed in found})

    def failures_of(self, group: Group) -> list[Failure]:
        """Return the failed cells of a group."""
        return [failure for failure in self.failures if failure.group == group]

    def places(self) -> list[Place]:
        """Return every place that has a value, in the table's order."""
        return list(dict.fromkeys(place for places in self.values.values() for place in places))

    def spread(self, group: Group | None, place: Place) -> Spread | None:
        """Return mean and deviation over the seeds, or None where nothing was measured."""
        found = self.values.get(group, {}).get(place) if group else None
        return Spread.of([value.value for value in found.values()]) if found else None

    def mean(self, group: Group | None, place: Place) -> float | None:
        """Return the mean over the seeds, or None where nothing was measured."""
        spread = self.spread(group, place)
        return spread.mean if spread else None

    def reference(self, method: str) -> Group | None:
        """Return the group of the original or of retraining, if the study has one with values."""
        return next((group for group in self.values if group.method == method and group.is_reference), None)

    def direction(self, place: Place) -> str:
        """Return which way is better: lower, higher, reference (nearest to retraining), or empty."""
        return self.directions.get(place) or default_direction(place)


def default_settings(results: Results, group: Group) -> dict[str, Any]:
    """Return what a method's settings are in this benchmark, by its profile; empty where it is not one of ours."""
    try:
        benchmark, method = find_benchmark(results.name, options=results.options), find_method(group.method)
        profile = group.profile or None
        return method.configure(benchmark.settings_for(method, profile), profile=profile).to_dict()
    except UsageError:
        return {}


def read_results(folder: Path) -> Results:
    """Read a study's folder. Whatever is wrong with it is said in one sentence, as a `UsageError`."""
    store = Store.open(folder)
    results = Results(folder=folder, about=store.about())
    try:
        results.at_once = max([1, *map(_workers, store.provenance())])
        results.notes |= results.about.get("notes", {})  # of numbers that were published without their cells
        rows = _table(store)
        for row in rows:
            _take(results, row)
        _take_cells(store, results)
        _take_failures(store, results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{folder} holds a study that cannot be read: {error}. Run `unweave study` again.") from error
    if not results.values and not results.failures:
        raise UsageError(f"{folder} holds a study without a finished cell. Run `unweave study` to its end first.")
    return results


def _workers(run: dict[str, Any]) -> int:
    """Return how many processes a start had; older ones say it in their command only."""
    said = re.search(r"--workers[ =](\d+)", str(run.get("command", "")))
    return int(run.get("workers") or (said[1] if said else 1))


def _table(store: Store) -> list[dict[str, Any]]:
    """Return the rows of the finished cells or, of published numbers, which are a table alone, those of the table.

    A cell may have been finished, compared anew or removed after the table was written.
    """
    table = _parquet(store.table) if store.table.exists() else []
    return store.rows() or table


def _parquet(path: Path) -> list[dict[str, Any]]:
    require_package("pyarrow", "Reading a study's table")
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as a table. Run `unweave study` again to write it anew.") from error
    missing = [column for column in NEEDED if column not in table.column_names]
    if missing:
        raise UsageError(f"{path} lacks the columns {', '.join(missing)}. Run `unweave study` again to write it anew.")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _cell(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return (row["method"], row["profile"] or "", row["variant"] or "", int(row["seed"]))


def _take(results: Results, row: dict[str, Any]) -> None:
    if row["value"] is None or row["value"] != row["value"]:  # not measured: NaN is how pandas writes nothing
        return
    *names, seed = _cell(row)
    place = Place(row["split"] or "", row["subset"] or "", row["metric"])
    value = Value(float(row["value"]), row.get("low"), row.get("high"))
    results.values.setdefault(Group(*names), {}).setdefault(place, {})[seed] = value


def _take_cells(store: Store, results: Results) -> None:
    """Read what the table does not hold: histories, loss distributions, directions, versions."""
    for cell, labels in store.finished().items():
        folder = store.cells / cell
        config, scores = json.loads((folder / "config.json").read_text()), store.scores_of(cell)
        *names, seed = _cell(labels)
        group = Group(*names)
        results.versions |= {name: config[name] for name in ("unweave", "torch") if name in config}
        results.settings[group] = config.get("settings", {})
        results.notes |= config.get("notes", {})
        if stages := scores.get("stages"):
            results.stages.setdefault(group, {})[seed] = stages
        for row in scores.get("metrics", []):
            results.directions[Place(row["split"], row["subset"], row["metric"])] = row["better"]
        if history := list(_history(folder / "history.jsonl")):
            results.histories.setdefault(group, {})[seed] = history
        if distribution := _distribution(scores):
            results.distributions.setdefault(group, {})[seed] = distribution
    for cost in COSTS:
        results.directions.setdefault(Place("", "", cost), "lower")


def _history(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


def _distribution(scores: dict[str, Any]) -> Distribution:
    found: Distribution = {}
    for split in ("train", "test"):
        for subset, metrics in scores.get(split, {}).items():
            histogram = metrics.get("loss_histogram")
            if histogram and sum(histogram["counts"]):
                found.setdefault(split, {})[subset] = {key: histogram[key] for key in ("edges", "counts")}
    return found


def _take_failures(store: Store, results: Results) -> None:
    for row in store.failures():
        *names, seed = _cell(row)
        group = Group(*names)
        # A cell that never started may not know its profile: it belongs to the group that ran with other seeds.
        same = [other for other in results.values if (other.method, other.variant) == (group.method, group.variant)]
        if not group.profile and len(same) == 1:
            group = same[0]
        if seed in results.seeds_of(group):  # it was run again elsewhere, and did not fail
            continue
        results.failures.append(Failure(group, seed, str(row["error"])))
