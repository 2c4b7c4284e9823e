"""The rows of the leaderboard, computed from studies: means, intervals, cost, and where they come from."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unweave.lab.leaderboard.evidence import require_complete, require_provenance, require_seeds
from unweave.lab.protocol import PROTOCOL
from unweave.lab.report import MEASURES, Comparison, Group, Results, compare

COSTS = ("seconds",)
BEFORE = "none"  # of numbers that are older than the protocol


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """One method on one benchmark, for one goal.

    ``values`` has for each measure its mean, the half width of its 95% interval (None for a single value) and the
    number of runs.
    """

    board: str
    goal: str
    method: str
    profile: str
    failed: int
    seeds: tuple[int, ...]
    studies: tuple[str, ...]
    values: Mapping[str, tuple[float, float | None, int]]
    seconds: float | None
    hardware: str
    protocol: str
    commits: tuple[str, ...]

    @property
    def name(self) -> str:
        """The method with its profile."""
        return f"{self.method} {self.profile}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the entries by name."""
        return asdict(self)


def rows_of(studies: Sequence[Results], *, methods: Iterable[str] | None = None) -> list[BoardRow]:
    """Return the rows of some studies of one benchmark; raise an error if one lacks provenance or seeds.

    Variants are left out: a leaderboard compares methods. ``methods`` names those to take; the default is all.
    """
    runs = [run for results in studies for run in require_provenance(results.folder)]
    for results in studies:
        require_complete(results)
    found = compare(studies, baseline="original")
    wanted = None if methods is None else {*methods}
    rows = []
    for group in found.names:
        if group.is_reference or group.variant or (wanted is not None and group.method not in wanted):
            continue
        for goal in PROTOCOL.goals:
            values = _values(found, group, goal)
            if values:
                rows.append(_row(studies, runs, group, goal, values))
    return rows


def _row(
    studies: Sequence[Results],
    runs: Sequence[Mapping[str, Any]],
    group: Group,
    goal: str,
    values: Mapping[str, tuple[float, float | None, int]],
) -> BoardRow:
    own = [results for results in studies if results.seeds_of(group)]
    for results in own:
        require_seeds(results, group)
    versions = {str(run.get("protocol", BEFORE)) for run in runs}
    return BoardRow(
        board=board_of(studies),
        goal=goal,
        method=group.method,
        profile=group.profile,
        failed=sum(len(results.failures_of(group)) for results in studies),
        seeds=tuple(sorted({seed for results in own for seed in results.seeds_of(group)})),
        studies=tuple(results.benchmark for results in own),
        values=values,
        seconds=_seconds(own, group),
        hardware=", ".join(sorted({str(run["hardware"]["device"]) for run in runs})),
        protocol=versions.pop() if len(versions) == 1 else BEFORE,
        commits=tuple(dict.fromkeys(str(run["commit"]) for run in runs)),
    )


def board_of(studies: Sequence[Results]) -> str:
    """Return the table that these studies belong to: the benchmark, the options they share, and how many they are."""
    options = [results.options for results in studies]
    shared = {name: value for name, value in options[0].items() if all(one.get(name) == value for one in options)}
    title = " ".join([studies[0].name, *(f"{name}={value}" for name, value in sorted(shared.items()))])
    return title if len(studies) == 1 else f"{title}, {len(studies)} studies"


def _values(found: Comparison, group: Group, goal: str) -> dict[str, tuple[float, float | None, int]]:
    """Return the estimates of a goal's measures. Settings that were tuned for the goal retrain have no other."""
    if goal == "erase" and group.profile.endswith("-retrain"):
        return {}
    of = found.own.get(group, {})
    names = [measure.name for measure in MEASURES if measure.goal == goal and measure.name in of]
    return {name: (of[name].mean, of[name].reach, of[name].runs) for name in names}


def _seconds(studies: Sequence[Results], group: Group) -> float | None:
    """Return the mean time of a run, if it was measured. Runs may have shared their machine."""
    times = [
        value.value
        for results in studies
        for place, found in results.values[group].items()
        if place.metric in COSTS
        for value in found.values()
    ]
    return statistics.fmean(times) if times else None
