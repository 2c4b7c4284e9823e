"""The paper's studies as data: the cells of each, and the tables and figures that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unweave.errors import unknown
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.adjacency import CLASSES, NEIGHBOURS
from unweave.lab.study.cells import Cell, each_once, plan, profile_of
from unweave.methods import methods_for


@dataclass(frozen=True, kw_only=True)
class PresetPart:
    """Some methods, with the settings and adjacencies to run."""

    methods: tuple[str, ...]
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    adjacency: tuple[str, ...] = (CLASSES,)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named study. ``shows`` names the tables and figures of the report that answer its question."""

    name: str
    summary: str
    parts: tuple[PresetPart, ...]
    shows: tuple[str, ...] = ("accuracy",)
    watch: bool = False


ORIGINAL, TWO_STAGE, EVERY = (
    PresetPart(methods=("original",)),
    PresetPart(methods=("two-stage",)),
    PresetPart(methods=("all",)),
)
SIDES = {"constrain_adjacent": ("false", "true")}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="comparison", summary="Every method: what is forgotten, what is kept.", parts=(EVERY,)),
        Preset(
            name="without-w2",
            summary="The two-stage method without its Wasserstein term (plain PGD in stage 2).",
            parts=(ORIGINAL, PresetPart(methods=("two-stage", "pgd"))),
        ),
        Preset(
            name="alpha",
            summary="The weight of the Wasserstein term: 0, 0.5 and 1.",
            parts=(ORIGINAL, PresetPart(methods=("two-stage",), grid={"alpha": ("0", "0.5", "1")})),
        ),
        Preset(
            name="mu",
            summary="The penalty mu of stage 1: 5, 10 and 20.",
            parts=(ORIGINAL, PresetPart(methods=("two-stage",), grid={"penalty": ("5", "10", "20")})),
        ),
        Preset(
            name="stage-1",
            summary="Stage 1 with remote data held in place, or adjacent data too; after stage 1 and after both.",
            parts=(
                ORIGINAL,
                PresetPart(methods=("two-stage",), grid={"stage2_epochs": ("0",), **SIDES}),
                PresetPart(methods=("two-stage",), grid=SIDES),
            ),
        ),
        Preset(
            name="noise",
            summary="A fifth of the remote samples treated as adjacent, or of the adjacent samples as remote.",
            parts=(
                ORIGINAL,
                PresetPart(
                    methods=("two-stage",), adjacency=(CLASSES, "remote-to-adjacent:0.2", "adjacent-to-remote:0.2")
                ),
            ),
        ),
        Preset(
            name="neighbours",
            summary="Adjacent data by neighbours in the original model's features, against adjacent data by classes.",
            parts=(ORIGINAL, PresetPart(methods=("two-stage",), adjacency=(CLASSES, NEIGHBOURS))),
        ),
        Preset(
            name="retrain",
            summary="The two-stage method against retraining without the forget data.",
            parts=(ORIGINAL, PresetPart(methods=("retrain",)), TWO_STAGE),
            shows=("accuracy", "other", "cost"),
        ),
        Preset(name="cost", summary="Run time and memory of every method.", parts=(EVERY,), shows=("cost",)),
        Preset(
            name="dynamics",
            summary="Forget loss and accuracies during stage 2, with and without the Wasserstein term.",
            parts=(ORIGINAL, PresetPart(methods=("two-stage", "pgd"))),
            shows=("dynamics",),
            watch=True,
        ),
        Preset(
            name="membership",
            summary="Membership attacks on every method, compared with a retrained model.",
            parts=(EVERY,),
            shows=("membership",),
        ),
    )
}
ALL = "all"


def find_presets(name: str) -> list[Preset]:
    """Return the preset of that name; ``all`` returns every preset.

    >>> [preset.name for preset in find_presets("alpha")]
    ['alpha']
    """
    if name != ALL and name not in PRESETS:
        raise unknown("study", name, (*PRESETS, ALL))
    return list(PRESETS.values()) if name == ALL else [PRESETS[name]]


def preset_cells(
    preset: Preset,
    benchmark: Benchmark,
    *,
    seeds: int,
    first_seed: int = 0,
    profiles: Sequence[str] = (),
    watch: bool = False,
) -> list[Cell]:
    """Return the cells of a preset. Each profile applies to the methods that have it."""
    cells = []
    for part in preset.parts:
        methods = [benchmark.method(name) for name in _names(part, benchmark)]
        known = [name for name in profiles if any(name in method.profiles for method in methods)]
        cells += plan(
            part.methods,
            seeds=seeds,
            first_seed=first_seed,
            profiles=known,
            grid=part.grid,
            adjacency=part.adjacency,
            watch=preset.watch or watch,
            benchmark=benchmark,
        )
    return each_once(cells)


def _names(part: PresetPart, benchmark: Benchmark) -> Sequence[str]:
    return list(methods_for(tokens=benchmark.has_tokens)) if part.methods == ("all",) else part.methods


def describe_preset(preset: Preset, cells: Sequence[Cell]) -> dict[str, Any]:
    """Describe a preset for the study's folder: its question, the tables and figures that answer it, and their rows.

    A row is a method, a profile and a variant; ``about`` names the settings in which the rows differ.
    """
    rows = dict.fromkeys((cell.method, profile_of(cell), cell.variant) for cell in cells)
    about = dict.fromkeys(setting for part in preset.parts for setting in part.grid)
    return {
        "summary": preset.summary,
        "shows": list(preset.shows),
        "about": list(about),
        "rows": [list(row) for row in rows],
    }
