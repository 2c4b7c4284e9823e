"""What `unweave study` does: find the cells, run them, and print what came out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from unweave.cli.app import err_console, out_console, say, stop
from unweave.cli.options import chosen_options, pairs, words
from unweave.cli.worker_count import sharing
from unweave.engine import Compute
from unweave.errors import RunError, UsageError, on_one_line
from unweave.lab.benchmarks import Benchmark, find_benchmark, profile_of_folder
from unweave.lab.report import Group, Results, accuracy_table, answer_table, label
from unweave.lab.study import (
    Cell,
    CellProgress,
    Store,
    describe_preset,
    each_once,
    find_presets,
    no_profile,
    plan,
    preset_cells,
    profile_of,
    run_study,
    run_workers,
)


def study_of(
    *,
    benchmark: str,
    out: Path,
    named: str | None,
    methods: str | None,
    seeds: int,
    first_seed: int,
    profiles: str,
    tuned: Path | None,
    grid: list[str] | None,
    adjacency: str,
    watch: bool,
    track: str,
    workers: str,
    cluster: str | None,
    time_limit: float | None,
    keep_models: str,
    originals: Path | None,
    data: str | None,
    options: list[str] | None,
    small: bool,
    device: str | None,
    precision: str,
    compile_: str,
    as_json: bool,
) -> None:
    """Run a study, with the arguments of `unweave study`."""
    source = partial(find_benchmark, benchmark, data=data, options=chosen_options(options, small), tuned=tuned)
    if tuned is not None:
        _require_profile(tuned, profiles)
    own = {"grid": _axes(grid or []), "adjacency": words(adjacency)}
    every = {"seeds": seeds, "first_seed": first_seed, "profiles": words(profiles), "watch": watch}
    cells, presets = _asked_for(source(), named=named, methods=methods, own=own, every=every)
    how: dict[str, Any] = {"device": device, "precision": precision, "compile": compile_}
    common: dict[str, Any] = {
        **how,
        "presets": presets,
        "keep": keep_models,
        "time_limit": time_limit,
        "track": words(track),
        "originals": originals,
    }
    try:
        with sharing(workers, source, Compute(**how), cluster=cluster) as count:
            done = _run(source, cells, out, workers=count, cluster=cluster, **common)
    except KeyboardInterrupt:
        stop("Stopped. Finished work is kept. Run the same command to resume.")
    _show(done, cells, as_json=as_json)


def _run(
    source: Callable[[], Benchmark],
    cells: list[Cell],
    out: Path,
    *,
    workers: int,
    cluster: str | None,
    **common: Any,
) -> Store:
    """Run the cells in this process, in several, or on a cluster."""
    common["progress"] = lambda store: CellProgress(store, cells, workers=workers, show=None, write=say)
    if workers > 1 or cluster is not None:
        return run_workers(source, cells, out, workers=workers, cluster=cluster, **common)
    return run_study(source(), cells, out, **common)


def _with_recipe(benchmark: Benchmark, cells: list[Cell]) -> list[Cell]:
    """Return the cells that can run: without a training recipe nothing is retrained."""
    if benchmark.retrains or all(cell.method != "retrain" for cell in cells):
        return cells
    say(f"{benchmark.name} has no training recipe, so nothing is retrained or compared with retrained models.")
    return [cell for cell in cells if cell.method != "retrain"]


def _require_profile(tuned: Path, profiles: str) -> None:
    """Raise if no profile asked for uses the folder of tuned settings."""
    if (profile := profile_of_folder(tuned)) not in words(profiles):
        raise UsageError(
            f"{tuned} has settings of the profile {profile}, but the profiles asked for are "
            f"{profiles or 'the first of each method'}. Add --profiles {profile}, or leave --tuned out."
        )


def _axes(texts: list[str]) -> dict[str, list[str]]:
    """Return the values to try for each setting. If a setting is given twice, all its values count."""
    axes: dict[str, list[str]] = {}
    for text in texts:
        for key, values in pairs([text]).items():
            axes.setdefault(key, []).extend(value.strip() for value in values.split(","))
    return axes


def _asked_for(
    benchmark: Benchmark,
    *,
    named: str | None,
    methods: str | None,
    own: dict[str, Any],
    every: dict[str, Any],
) -> tuple[list[Cell], dict[str, Any]]:
    """Return the cells that the command asks for, and descriptions of its named studies.

    ``own`` holds what a named study sets itself. ``every`` applies to named studies, too.
    """
    of_own = methods is not None or own["grid"] or own["adjacency"] != ["classes"]
    if named is None and of_own:
        cells = plan(words("all" if methods is None else methods), benchmark=benchmark, **own, **every)
        return _with_recipe(benchmark, cells), {}
    named = named or "comparison"
    if of_own:
        raise UsageError(f"The study {named!r} sets its own cells. Leave --methods, --grid and --adjacency out.")
    cells = []
    presets = {}
    for preset in find_presets(named):
        found = preset_cells(preset, benchmark, **every)
        presets[preset.name] = describe_preset(preset, found)
        cells += found
    for profile in every["profiles"]:
        if not any(profile_of(cell) == profile for cell in cells):
            raise no_profile(profile)
    return _with_recipe(benchmark, each_once(cells)), presets


def _by_label(
    store: Store, groups: dict[Cell, Group], read: Callable[[str], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the scores of the finished cells, by the name of their row."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell, group in groups.items():
        if store.is_done(cell) and (scores := read(cell.name)):
            found.setdefault(label(group, groups.values()), []).append(scores)
    return found


def _show(store: Store, cells: list[Cell], *, as_json: bool) -> None:
    """Print the table, the failed cells, and how many cells are left."""
    groups = {cell: Group(cell.method, profile_of(cell), cell.variant) for cell in cells}
    rows, answers = (_by_label(store, groups, read) for read in (store.scores_of, store.answer_scores_of))
    done, failed = sum(map(store.is_done, cells)), store.failures(cells)
    if as_json:
        content = {"out": str(store.folder), "table": str(store.table), "cells": len(cells), "done": done}
        typer.echo(json.dumps({**content, "failed": failed}))
    elif rows:
        out_console.print(answer_table(answers) if answers else accuracy_table(rows))
        if caution := Results(folder=store.folder, about=store.about()).caution:
            out_console.print(caution, highlight=False, markup=False)
        next_one = shlex.join(["unweave", "report", str(store.folder)])
        words = f"\nTable: {store.table}\nTables, figures and a page: {next_one}"
        out_console.print(words, highlight=False, markup=False, soft_wrap=True)
    for failure in failed:
        name = label(Group(failure["method"], failure["profile"], failure["variant"]), groups.values())
        words = on_one_line(f"failed: {name} seed {failure['seed']}: {failure['error']}")
        err_console.print(words, markup=False, soft_wrap=True)
    compare = store.not_compared(cells)
    if compare or any(not store.is_done(cell) and not store.has_failed(cell) for cell in cells):
        rest = f", {len(compare)} of them not compared with the retrained models yet" if compare else ""
        say(f"{done} of {len(cells)} cells are done{rest}. Run the same command to continue.")
    if failed:
        raise RunError(f"{len(failed)} of {len(cells)} cells failed. The others are in {store.table}.")
