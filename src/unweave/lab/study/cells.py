"""A cell of a study: one method with its settings, one adjacency, one seed."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unweave.data import RETAINED
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.adjacency import CLASSES, check_adjacency
from unweave.methods import Method, find_method, methods_for

REFERENCES = ("original", "retrain")
LONGEST = 255 - len(".json.partial")  # bytes of a file name, less the longest suffix of a cell's files
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*[1-9])?(e-?[1-9]\d*)?")  # the shortest form: 0.2 and 1e-4, not .20 and 1E-04


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a study. ``settings`` are the values that differ from the method's defaults on the benchmark.

    ``adjacency`` says which samples the method treats as adjacent (`unweave.lab.study.adjacency`); the scores always
    use the benchmark's own split. With ``watch``, accuracies are logged during the run.
    """

    method: str
    seed: int
    profile: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    adjacency: str = CLASSES
    watch: bool = False

    @property
    def variant(self) -> str:
        """The differences from the default, as a short text.

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
    """Replace the characters that some file systems do not accept."""
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
    """Return every cell of a study, ordered by method, profile, settings, adjacency and seed.

    A profile, a setting of the grid and an adjacency apply to the methods that use them; a method that uses none of
    them runs once. A reference takes a setting only if no other method has it, because the others are measured against
    it. A setting's default on the ``benchmark`` makes no variant, and neither does the method's first profile: both are
    the plain cell. Two spellings of a value count once. Wrong values raise an error here, before anything runs.

    >>> [cell.name for cell in plan(["ft", "two-stage"], seeds=1, grid={"alpha": ["0", "0.5"]})]
    ['ft.seed-0', 'two-stage.alpha=0.seed-0', 'two-stage.seed-0']
    """
    if seeds < 1:
        raise UsageError(f"A study needs at least one seed, not {seeds}.")
    if not methods:
        raise UsageError("A study needs at least one method. Give names from `unweave methods`, or all.")
    chosen = _chosen(methods, benchmark)
    grids = _grids(chosen, grid or {})
    _check_profiles(chosen, profiles)
    adjacency = [_spelt_adjacency(kind) for kind in adjacency]
    cells = []
    for method in chosen:
        rows = _rows(method, profiles=profiles, grid=grids[method.name], benchmark=benchmark)
        cells += [
            Cell(
                method=method.name,
                seed=seed,
                profile=None if profile == next(iter(method.profiles)) else profile,
                settings=settings,
                adjacency=kind,
                watch=watch and method.name != "original",
            )
            for profile, settings in rows
            for kind in (adjacency if tells_apart(method) else (CLASSES,))
            for seed in range(first_seed, first_seed + seeds)
        ]
    return each_once(cells)


def _chosen(methods: Sequence[str], benchmark: Benchmark | None) -> list[type[Method]]:
    """Return the methods of these names; for ``all``, those that fit the benchmark."""
    names = dict.fromkeys(methods)
    if list(methods) == ["all"]:
        names = dict.fromkeys(methods_for(tokens=benchmark is not None and benchmark.has_tokens))
    return [benchmark.method(name) if benchmark else find_method(name) for name in names]


def _grids(methods: Sequence[type[Method]], grid: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Sequence[str]]]:
    """Return the grid of each method: the settings that it has.

    A reference takes a setting only if no other method has it.
    """
    grids: dict[str, dict[str, Sequence[str]]] = {method.name: {} for method in methods}
    settings_of = {method.name: {row["name"] for row in method.describe()} for method in methods}
    for setting, values in grid.items():
        having = [name for name, known in settings_of.items() if setting in known]
        if not having:
            raise UsageError(f"No method of this study has the setting {setting!r}. `unweave methods NAME` lists them.")
        for name in [name for name in having if name not in REFERENCES] or having:
            grids[name][setting] = values
    return grids


def _check_profiles(methods: Sequence[type[Method]], profiles: Sequence[str]) -> None:
    """Raise an error for a profile that no method has."""
    for profile in profiles:
        if not any(profile in method.profiles for method in methods):
            raise no_profile(profile)


def _rows(
    method: type[Method], *, profiles: Sequence[str], grid: Mapping[str, Sequence[str]], benchmark: Benchmark | None
) -> Iterator[tuple[str | None, tuple[tuple[str, str], ...]]]:
    """Yield each profile and combination of settings that a method is run with."""
    own: list[str | None] = [profile for profile in profiles if profile in method.profiles]
    if not own and is_tuned(profiles) and can_be_tuned(method):
        raise UsageError(
            f"{method.name} has no profile {' or '.join(profiles)} and would run untuned beside tuned methods. "
            "Tune it too, or choose the methods to run with --methods."
        )
    axes = {setting: _spelt(method, setting, values) for setting, values in grid.items()}
    for profile, values in itertools.product(own or [None], itertools.product(*axes.values())):
        yield profile, _different(method, dict(zip(axes, values, strict=True)), profile=profile, benchmark=benchmark)


def is_tuned(profiles: Sequence[str]) -> bool:
    """Return whether there are profiles, all of them from tuning."""
    return bool(profiles) and all(profile.startswith("tuned") for profile in profiles)


def can_be_tuned(method: type[Method]) -> bool:
    """Return whether a method has settings to tune. The references are not tuned.

    >>> can_be_tuned(find_method("ft")), can_be_tuned(find_method("retrain"))
    (True, False)
    """
    return method.name not in REFERENCES and bool(method.searched())


def no_profile(name: str) -> UsageError:
    """Return the error for a profile that no method has."""
    hint = " `unweave tune` makes it; give its folder with --tuned." if name.startswith("tuned") else ""
    return UsageError(f"No method of this study has the profile {name!r}.{hint}")


def tells_apart(method: type[Method]) -> bool:
    """Return whether a method treats adjacent and remote samples differently.

    >>> tells_apart(find_method("two-stage")), tells_apart(find_method("ft")), tells_apart(find_method("ga"))
    (True, False, False)
    """
    return set(RETAINED) <= set(method.needs)


def each_once(cells: Iterable[Cell]) -> list[Cell]:
    """Keep one of the cells that name the same folder; it is watched if any of them is.

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
    """Return the cell's profile; the default is the method's first."""
    return cell.profile or next(iter(find_method(cell.method).profiles))


def in_running_order(cells: Iterable[Cell]) -> list[Cell]:
    """Sort the cells by seed, references first, so that a study that stops early has complete seeds."""
    return sorted(cells, key=lambda cell: (cell.seed, cell.method not in REFERENCES))


def _setting_names(method: type[Method]) -> set[str]:
    return {row["name"] for row in method.describe()}


def _spelt(method: type[Method], setting: str, values: Iterable[str]) -> list[str]:
    """Return each value once, in its shortest spelling.

    >>> _spelt(find_method("two-stage"), "alpha", [" 0.25", ".25", "1e-4", "0.0001", "1.0"])
    ['0.25', '1e-4', '1']
    """
    found: dict[Any, str] = {}
    for text in values:
        value = method.parse({setting: text.strip()}).to_dict()[setting]
        found.setdefault(value, str(value).lower() if isinstance(value, bool) else _spelt_number(text.strip(), value))
    return list(found.values())


def _spelt_number(text: str, value: Any) -> str:
    """Return a number in its shortest form. A text in this form stays as it is, so cells keep their names.

    >>> [_spelt_number(text, float(text)) for text in ("1e-4", "1E-05", "0.20", "+5.0", "1e30")]
    ['1e-4', '1e-5', '0.2', '5', '1e30']
    """
    if isinstance(value, int | float) and not NUMBER.fullmatch(text):
        return repr(value).removesuffix(".0").replace("e+", "e").replace("e-0", "e-")
    return text


def _spelt_adjacency(kind: str) -> str:
    """Check an adjacency, and return it with its share in the shortest form.

    >>> _spelt_adjacency("remote-to-adjacent:.20")
    'remote-to-adjacent:0.2'
    """
    check_adjacency(kind)
    name, _, share = kind.partition(":")
    return f"{name}:{_spelt_number(share, float(share))}" if share else name


def _different(
    method: type[Method], values: Mapping[str, str], *, profile: str | None, benchmark: Benchmark | None
) -> tuple[tuple[str, str], ...]:
    """Check all values, and return those that differ from the method's defaults on the benchmark."""
    if benchmark is None and method.name == "retrain":  # its defaults come from the benchmark
        return tuple(values.items())
    defaults = benchmark.settings_for(method, profile) if benchmark else {}
    before = method.configure(defaults, profile=profile).to_dict()
    after = method.configure(defaults, values, profile=profile).to_dict()
    return tuple((name, value) for name, value in values.items() if after[name] != before[name])


def as_settings(cell: Cell, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark's values for the method, overridden by the cell's own."""
    return {**defaults, **dict(cell.settings)}
