"""A cell of a study: one method with its settings, on one kind of adjacency, and one seed."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unweave.data import RETAINED
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.adjacency import CLASSES, check_adjacency
from unweave.methods import Method, all_methods, find_method

REFERENCES = ("original", "retrain")
LONGEST = 255 - len(".json.partial")  # bytes of a name that file systems take, with what files of a cell add to it
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*[1-9])?(e-?[1-9]\d*)?")  # as one writes it, without idle signs and digits


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is run: ``settings`` are the values that differ from the method's default on the benchmark.

    ``adjacency`` says which samples the method is told to be adjacent (`unweave.lab.study.adjacency`); it is always
    scored on the benchmark's own split. With ``watch``, accuracies are logged while it runs.
    """

    method: str
    seed: int
    profile: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    adjacency: str = CLASSES
    watch: bool = False

    @property
    def variant(self) -> str:
        """What differs from the default, as a short text.

        >>> Cell(method="two-stage", seed=0, settings=(("alpha", "0.5"),), adjacency="neighbours").variant
        'alpha=0.5 adjacency=neighbours'
        """
        own = [] if self.adjacency == CLASSES else [f"adjacency={self.adjacency}"]
        return " ".join([*(f"{name}={value}" for name, value in self.settings), *own])

    @property
    def name(self) -> str:
        """A name for the cell's folder, safe on every file system.

        >>> Cell(method="two-stage", seed=2, profile="paper", settings=(("alpha", "0"),)).name
        'two-stage.paper.alpha=0.seed-2'
        """
        parts = [self.method, self.profile or "", self.variant.replace(" ", ",")]
        row = ".".join(safe(part) for part in parts if part)
        room = LONGEST - len(f".seed-{self.seed}")
        if len(row.encode()) > room:
            mark = "." + hashlib.blake2b(row.encode(), digest_size=8).hexdigest()
            row = row.encode()[: room - len(mark)].decode(errors="ignore") + mark
        return f"{row}.seed-{self.seed}"


def safe(part: str) -> str:
    """Return a part of a cell's name as every file system takes it."""
    return re.sub(r"[^\w=,.+-]", "_", part)


def plan(
    methods: Sequence[str],
    *,
    seeds: int,
    first_seed: int = 0,
    profiles: Sequence[str] = (),
    grid: Mapping[str, Sequence[str]] | None = None,
    adjacency: Sequence[str] = (CLASSES,),
    watch: bool = False,
    benchmark: Benchmark | None = None,
) -> list[Cell]:
    """Return every cell of a study: seeds inside adjacency inside settings inside profiles inside methods.

    A profile, a grid's setting or another adjacency goes to the methods that have it or read it; but a setting of
    theirs does not go to retraining, which they are measured by. A method that has none of them runs once. A setting's
    default on the ``benchmark`` makes no variant: it is the plain cell, and so is the method's first profile. A value
    in two spellings is one. A wrong value is refused here, before anything is run.

    >>> [cell.name for cell in plan(["ft", "two-stage"], seeds=1, grid={"alpha": ["0", "0.5"]})]
    ['ft.seed-0', 'two-stage.alpha=0.seed-0', 'two-stage.seed-0']
    """
    if seeds < 1:
        raise UsageError(f"A study needs at least one seed, not {seeds}.")
    if not methods:
        raise UsageError("A study needs at least one method: names from `unweave methods`, or all.")
    names = list(all_methods()) if list(methods) == ["all"] else list(dict.fromkeys(methods))
    chosen = {name: benchmark.method(name) if benchmark else find_method(name) for name in names}
    grid = grid or {}
    own_settings = {name: _setting_names(method) for name, method in chosen.items()}
    for setting in grid:
        having = [name for name, settings in own_settings.items() if setting in settings]
        if not having:
            raise UsageError(f"No method of this study has the setting {setting!r}. `unweave methods NAME` lists them.")
        if set(having) - set(REFERENCES):  # what they are measured by stays as it is
            for name in REFERENCES:
                own_settings.get(name, set()).discard(setting)
    for profile in profiles:
        if not any(profile in method.profiles for method in chosen.values()):
            raise no_profile(profile)
    adjacency = [_spelt_adjacency(kind) for kind in adjacency]
    cells = []
    for name, method in chosen.items():
        own_profiles: list[str | None] = [profile for profile in profiles if profile in method.profiles]
        if not own_profiles and is_tuned(profiles) and can_be_tuned(method):
            raise UsageError(
                f"{name} has no settings of the profile {', '.join(profiles)}, and would stand untuned beside others. "
                "Tune it too, or name the methods to run with --methods."
            )
        axes = {
            setting: _spelt(method, setting, values)
            for setting, values in grid.items()
            if setting in own_settings[name]
        }
        kinds = adjacency if tells_apart(method) else (CLASSES,)
        for own, values in itertools.product(own_profiles or [None], itertools.product(*axes.values())):
            settings = _different(method, dict(zip(axes, values, strict=True)), profile=own, benchmark=benchmark)
            cells += [
                Cell(
                    method=name,
                    seed=seed,
                    profile=None if own == next(iter(method.profiles)) else own,
                    settings=settings,
                    adjacency=kind,
                    watch=watch and name != "original",
                )
                for kind in kinds
                for seed in range(first_seed, first_seed + seeds)
            ]
    return each_once(cells)


def is_tuned(profiles: Sequence[str]) -> bool:
    """Tell whether these are profiles that tuning makes, and no others."""
    return bool(profiles) and all(profile.startswith("tuned") for profile in profiles)


def can_be_tuned(method: type[Method]) -> bool:
    """Tell whether there is anything to tune in a method; there is not in what others are measured by.

    >>> can_be_tuned(find_method("ft")), can_be_tuned(find_method("retrain"))
    (True, False)
    """
    return method.name not in REFERENCES and bool(method.searched())


def no_profile(name: str) -> UsageError:
    """Return the error for a profile that no method has."""
    hint = " `unweave tune` makes it; give its folder with --tuned." if name.startswith("tuned") else ""
    return UsageError(f"No method of this study has the profile {name!r}.{hint}")


def tells_apart(method: type[Method]) -> bool:
    """Tell whether it matters to a method which of the kept samples are adjacent.

    >>> tells_apart(find_method("two-stage")), tells_apart(find_method("ft")), tells_apart(find_method("ga"))
    (True, False, False)
    """
    return set(RETAINED) <= set(method.needs)


def each_once(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells without those that name the same folder; one is watched if any of them is.

    >>> both = [Cell(method="ft", seed=0), Cell(method="ft", seed=0, watch=True)]
    >>> each_once(both) == both[1:]
    True
    """
    found: dict[str, Cell] = {}
    for cell in cells:
        known = found.get(cell.name, cell)
        found[cell.name] = replace(known, watch=known.watch or cell.watch)
    return list(found.values())


def profile_of(cell: Cell) -> str:
    """Return the cell's profile, or the method's first where it names none."""
    return cell.profile or next(iter(find_method(cell.method).profiles))


def in_running_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells seed by seed, so that a study that is stopped early has whole seeds, references first."""
    return sorted(cells, key=lambda cell: (cell.seed, cell.method not in REFERENCES))


def _setting_names(method: type[Method]) -> set[str]:
    return {row["name"] for row in method.describe()}


def _spelt(method: type[Method], setting: str, values: Iterable[str]) -> list[str]:
    """Return each value once, as one writes it.

    >>> _spelt(find_method("two-stage"), "alpha", [" 0.25", ".25", "1e-4", "0.0001", "1.0"])
    ['0.25', '1e-4', '1']
    """
    found: dict[Any, str] = {}
    for text in values:
        value = method.parse({setting: text.strip()}).to_dict()[setting]
        found.setdefault(value, str(value).lower() if isinstance(value, bool) else _spelt_number(text.strip(), value))
    return list(found.values())


def _spelt_number(text: str, value: Any) -> str:
    """Return a number without idle signs and digits. A text that has none stays, and so does the name of its cell.

    >>> [_spelt_number(text, float(text)) for text in ("1e-4", "1E-05", "0.20", "+5.0", "1e30")]
    ['1e-4', '1e-5', '0.2', '5', '1e30']
    """
    if isinstance(value, int | float) and not NUMBER.fullmatch(text):
        return repr(value).removesuffix(".0").replace("e+", "e").replace("e-0", "e-")
    return text


def _spelt_adjacency(kind: str) -> str:
    """Return the text of an adjacency, having checked it, with its share as one writes it.

    >>> _spelt_adjacency("remote-to-adjacent:.20")
    'remote-to-adjacent:0.2'
    """
    check_adjacency(kind)
    name, _, share = kind.partition(":")
    return f"{name}:{_spelt_number(share, float(share))}" if share else name


def _different(
    method: type[Method], values: Mapping[str, str], *, profile: str | None, benchmark: Benchmark | None
) -> tuple[tuple[str, str], ...]:
    """Return the values that differ from the method's own on the benchmark, having checked all of them."""
    if benchmark is None and method.name == "retrain":  # its recipe comes from the benchmark
        return tuple(values.items())
    defaults = benchmark.settings_for(method, profile) if benchmark else {}
    before = method.configure(defaults, profile=profile).to_dict()
    after = method.configure(defaults, values, profile=profile).to_dict()
    return tuple((name, value) for name, value in values.items() if after[name] != before[name])


def as_settings(cell: Cell, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark's values for the method, overridden by the cell's own."""
    return {**defaults, **dict(cell.settings)}
