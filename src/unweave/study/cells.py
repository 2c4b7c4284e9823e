"""A cell of a study: one method with its settings, and one seed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.errors import UsageError
from unweave.methods import all_methods, find_method


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is run: ``settings`` are the values that differ from the method's default on the benchmark."""

    method: str
    seed: int
    profile: str | None = None
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def variant(self) -> str:
        """The differing settings as a short text.

        >>> Cell(method="two-stage", seed=0, settings=(("alpha", "0.5"), ("penalty", "5"))).variant
        'alpha=0.5 penalty=5'
        """
        return " ".join(f"{name}={value}" for name, value in self.settings)

    @property
    def name(self) -> str:
        """A name for the cell's folder, safe on every file system.

        >>> Cell(method="two-stage", seed=2, profile="paper", settings=(("alpha", "0"),)).name
        'two-stage.paper.alpha=0.seed-2'
        """
        parts = [self.method, self.profile or "", self.variant.replace(" ", ","), f"seed-{self.seed}"]
        return ".".join(re.sub(r"[^\w=,.+-]", "_", part) for part in parts if part)


def plan(
    methods: Sequence[str],
    *,
    seeds: int,
    profiles: Sequence[str] = (),
    grid: Mapping[str, Sequence[str]] | None = None,
) -> list[Cell]:
    """Return every cell of a study: seeds inside settings inside profiles inside methods.

    A profile or a grid's setting goes to the methods that have it; a method that has none of them runs once. A
    wrong value is refused here, before anything is run.

    >>> [cell.name for cell in plan(["ft", "two-stage"], seeds=1, grid={"alpha": ["0", "1"]})]
    ['ft.seed-0', 'two-stage.alpha=0.seed-0', 'two-stage.alpha=1.seed-0']
    """
    if seeds < 1:
        raise UsageError(f"A study needs at least one seed, not {seeds}.")
    names = list(all_methods()) if list(methods) == ["all"] else list(dict.fromkeys(methods))
    chosen = {name: find_method(name) for name in names}
    grid = grid or {}
    for setting in grid:
        if not any(setting in _setting_names(name) for name in names):
            raise UsageError(f"No method of this study has the setting {setting!r}. `unweave methods NAME` lists them.")
    for profile in profiles:
        if not any(profile in method.profiles for method in chosen.values()):
            raise UsageError(f"No method of this study has the profile {profile!r}.")
    cells = []
    for name, method in chosen.items():
        own_profiles: list[str | None] = [profile for profile in profiles if profile in method.profiles]
        axes = {setting: values for setting, values in grid.items() if setting in _setting_names(name)}
        for own in own_profiles or [None]:
            for values in itertools.product(*axes.values()):
                settings = tuple(zip(axes, values, strict=True))
                if name != "retrain":  # its recipe comes from the benchmark
                    method.configure(dict(settings), profile=own)
                cells += [Cell(method=name, seed=s, profile=own, settings=settings) for s in range(seeds)]
    return cells


def _setting_names(method: str) -> set[str]:
    return {row["name"] for row in find_method(method).settings.describe()}


def as_settings(cell: Cell, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark's values for the method, overridden by the cell's own."""
    return {**defaults, **dict(cell.settings)}
