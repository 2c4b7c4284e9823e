"""The tables of README and docs that come from `results/`, page by page, each as it must stand there."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from bench.attacks.page import tables

import limit_tables
import record_leak
import speed_tables
import table
import tried
from places import RESULTS, TUNED
from unweave.lab.report import compare, grids, read_results

BENCHMARKS = {  # of a page of the results: the studies whose tables it has
    **{name: (name, f"{name}/tuned") for name in ("digits", "cifar100-resnet18", "cifar100-vit")},
    "toxigen": ("toxigen-roberta", "toxigen-roberta/tuned"),
    **{name: (name,) for name in ("clinc150", "fashion-mnist", "tinyimagenet-vit", "celeba-vit")},
}
COMPARED = {"each": "compare-erase", "each-retrain": "compare-retrain"}  # the table that the page has of such studies
TRIED = {
    "digits": ("erase", "targets", "few", "dial", "references"),
    "fashion-mnist": ("fashion",),
    "cifar100-resnet18": ("cifar", "cifar-retrain"),
}


def tables_of(page: str) -> list[str]:
    """Return the tables that a page must have; none for a page without such tables."""
    found = PAGES.get(page)
    return [] if found is None else [text.strip() for text in found()]


def _studies() -> Iterator[str]:
    yield table.times()
    yield from map(table.variants_table, ("cifar100-resnet18", "cifar100-resnet18-bee"))
    yield table.membership_table("cifar100-resnet18")


def _in_turn(benchmark: str) -> Iterator[str]:
    for folder, name in COMPARED.items():
        yield comparison(f"{benchmark}/{folder}", name)


def _attacks() -> Iterator[str]:
    for file in sorted(RESULTS.glob("*/attacks/numbers.json")):
        yield tables(json.loads(file.read_text()))


def comparison(folder: str, name: str) -> str:
    """Return a table of `unweave compare` over the studies of a folder, without marks."""
    studies = [read_results(study.parent) for study in sorted((RESULTS / folder).glob("*/study.json"))]
    grid = next(grid for grid in grids(compare(studies)) if grid.name == name)
    heads = ["method", *(column.heading for column in grid.columns)]
    lines = [f"| {' | '.join(heads)} |", f"| :--- |{' ---: |' * len(grid.columns)}"]
    lines += [f"| {' | '.join([row.name, *(entry.text for entry in row.entries)])} |" for row in grid.rows]
    return "\n".join(lines)


def _tuning() -> Iterator[str]:
    yield table.tuned_table("digits")
    yield held_out({"fashion-mnist": "Fashion-MNIST", "clinc150": "CLINC150", "tinyimagenet-vit": "Tiny-ImageNet"})


def held_out(names: dict[str, str]) -> str:
    """Return the held-out scores of `unweave` and of the next method, with their defaults in brackets."""
    ours, theirs = ["unweave"], ["next"]
    for name in names:
        chosen = json.loads((TUNED / f"{name}.json").read_text())["methods"]
        ours.append(scores(chosen["unweave"]))
        best = max((method for method in chosen if method != "unweave"), key=lambda method: chosen[method]["score"])
        theirs.append(f"{best} {scores(chosen[best])}")
    lines = [f"| method | {' | '.join(names.values())} |", "|---" * (1 + len(names)) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in (ours, theirs))])


def scores(chosen: dict[str, float]) -> str:
    """Return a tuned score, and in brackets the default's if it differs."""
    score, default = (f"{chosen[name]:.3f}" for name in ("score", "default_score"))
    return score if score == default else f"{score} ({default})"


def _tried() -> Iterator[str]:
    for benchmark, names in TRIED.items():
        for name in names:
            yield tried.show(name, RESULTS / benchmark / "tried")


def _record() -> Iterator[str]:
    with (RESULTS / "record-leak" / "leak.csv").open() as file:
        yield record_leak.table(list(csv.DictReader(file)))


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "README.md": lambda: iter([table.kinds()]),
    "docs/results.md": lambda: iter([table.overview()]),
    "docs/results/cifar100-resnet18-studies.md": _studies,
    "docs/results/cifar100-five-classes.md": lambda: _in_turn("cifar100-resnet18"),
    "docs/results/digits-in-turn.md": lambda: _in_turn("digits"),
    "docs/results/attacks.md": _attacks,
    **{f"docs/results/{page}.md": partial(map, table.table, names) for page, names in BENCHMARKS.items()},
    "docs/tuning.md": _tuning,
    "docs/what-we-tried-unweave.md": _tried,
    "docs/record.md": _record,
    "docs/speed.md": lambda: chain(speed_tables.all_tables(), limit_tables.all_tables()),
}
