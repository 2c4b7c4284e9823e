"""Our numbers beside those that the paper prints, for benchmarks that the paper has too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from unweave.lab.report.grids import Column, Entry, Grid, Row
from unweave.lab.report.measures import ARROWS, SPLITS, SUBSETS, Place, Spread
from unweave.lab.report.printed import PAPER, REMARKS, TABLES, Counterpart, PrintedRow, counterpart, printed_rows
from unweave.lab.report.results import Group, Results

CELLS = tuple((split, subset) for split in SPLITS for subset in SUBSETS)


def paper_notes(results: Results) -> list[str]:
    """Say what the paper's numbers and ours have in common, and what differs."""
    found = counterpart(results.name)
    if found is None:
        return [f"The paper has no benchmark like {results.name}, so it has no numbers to compare with."]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    notes = "; ".join(f"{name}: {words}" for name, words in results.notes.items())
    here = "; ".join(part for part in (notes, f"{len(results.seeds)} seeds", versions) if part)
    said = [
        f"The paper: {PAPER}. {found.setting}; three seeds; standard deviations as printed.",
        f"Here: benchmark {results.benchmark}; {here}; we trained the models again, so the starting points differ.",
    ]
    start = _start(results, found)
    return said + ([start] if start else [])


def _start(results: Results, found: Counterpart) -> str:
    """Say what the original models recognise, ours and the paper's."""
    theirs = next((row.values for row in _own_rows(results, found) if row.method == "original"), {})
    parts = []
    for cell in CELLS:
        mine = results.mean(results.reference("original"), Place(*cell, "accuracy"))
        if mine is not None and cell in theirs:
            parts.append(f"{' '.join(cell)} {100 * mine:.1f}% here, {100 * theirs[cell].mean:.1f}% in the paper")
    return f"The originals: {'; '.join(parts)}." if parts else ""


def _own_rows(results: Results, found: Counterpart) -> list[PrintedRow]:
    """Return the paper's rows on the forget set of this study; all rows if the benchmark has only one forget set."""
    chosen = str(results.options.get("forget", found.forget))
    return [row for row in printed_rows(found) if not found.forget or row.forget == chosen]


def paper_grid(results: Results) -> Grid | None:
    """Return our accuracies beside those of the paper; None if the paper has no such benchmark."""
    found = counterpart(results.name)
    if found is None:
        return None
    shown: list[tuple[str, Group | None, PrintedRow]] = []
    seen: set[Group] = set()
    # The paper's main table comes first. Its other tables add rows, such as retraining and other settings.
    for row in sorted(_own_rows(results, found), key=lambda row: row.table != found.table):
        groups = [group for group in row.groups(results) if group not in seen]
        seen |= {*groups}
        if row.table == found.table and not groups:
            shown.append((row.words, None, row))
        shown += [(results.label(group), group, row) for group in groups]
    title = f"Accuracy in % beside the paper's · {results.benchmark}"
    return _beside("paper", title, results, shown, paper_notes(results)) if shown else None


def preset_grid(results: Results, preset: str, labels: dict[Group, str]) -> Grid | None:
    """Return a named study's accuracies beside the paper's table of it; None if the paper has no such table."""
    found, table = counterpart(results.name), TABLES.get(preset)
    if found is None or table is None:
        return None
    rows = [row for row in printed_rows(found) if row.table == table]
    matched = {group: row for row in rows for group in row.groups(results)}
    if not matched:
        return None
    shown = [(words, group, matched.get(group)) for group, words in labels.items()]
    notes = [REMARKS[table]] if table in REMARKS else []
    others = sorted({row.forget for row in rows} - {str(results.options.get("forget", found.forget))})
    if found.forget and others:
        notes.append(f"The paper's rows are on another forget set: {', '.join(others)}.")
    return _beside(f"study-{preset}-paper", f"Accuracy in % beside the paper's · {preset}", results, shown, notes)


def _beside(
    name: str,
    title: str,
    results: Results,
    shown: Sequence[tuple[str, Group | None, PrintedRow | None]],
    notes: Sequence[str],
) -> Grid:
    """Return a table with two columns for each split and subset: ours and the paper's."""
    rows, records = [], []
    for words, group, row in shown:
        entries: list[Entry] = []
        for cell in CELLS:
            mine = results.spread(group, Place(*cell, "accuracy"))
            theirs = row.values.get(cell) if row else None
            failed = mine is None and group is not None and results.failures_of(group)
            entries += [Entry("failed") if failed else _entry(mine), _entry(theirs)]
            records.append(_record(group, row, cell, mine, theirs))
        rows.append(Row(words, tuple(entries)))
    columns = [
        Column(f"{subset} {ARROWS['lower' if subset == 'forget' else 'higher']} {side}", split)
        for split, subset in CELLS
        for side in ("ours", "paper")
    ]
    return Grid(name, title, tuple(columns), tuple(rows), records, tuple(notes))


def cost_grid(results: Results) -> Grid | None:
    """Return our costs beside the paper's; None if the paper prints none for the benchmark."""
    found = counterpart(results.name)
    if found is None or not found.costs:
        return None
    costs = json.loads((files("unweave.lab.report") / "data" / "paper-costs.json").read_text(encoding="utf-8"))
    minutes, memory = costs["run_time_minutes_rtx3090_cifar100_resnet18"], costs["gpu_memory_mb_batch128"]
    efficacy = {"two_stage": costs["mia_efficacy_two_stage_cifar100"]}
    plans = [
        ("minutes", Place("", "", "seconds"), minutes, 60.0),
        ("accelerator memory in MB", Place("", "", "peak_memory_bytes"), memory, 1e6),
        ("confidence attack: called non-members", Place("train", "forget", "mia_svc_confidence"), efficacy, 1.0),
    ]
    groups = [group for group in results.groups if not group.variant]
    rows, records = [], []
    for group in groups:
        entries, record = [], dict[str, Any](method=group.method, profile=group.profile)
        for heading, place, theirs, scale in plans:
            mine, printed_one = results.mean(group, place), theirs.get(group.method.replace("-", "_"))
            entries += [_plain(None if mine is None else mine / scale), _plain(printed_one)]
            stem = heading.split(":")[0].replace(" ", "_")
            record |= {f"{stem}_ours": None if mine is None else mine / scale, f"{stem}_paper": printed_one}
        rows.append(Row(results.label(group), tuple(entries)))
        records.append(record)
    columns = tuple(Column(side, heading) for heading, *_ in plans for side in ("ours", "paper"))
    note = "The paper measured time and memory on an RTX 3090 with batches of 128; other hardware gives other numbers."
    notes = (note, *filter(None, [results.sharing]))
    return Grid("paper-cost", f"Cost beside the paper's · {results.benchmark}", columns, tuple(rows), records, notes)


def _record(
    group: Group | None, row: PrintedRow | None, cell: tuple[str, str], mine: Spread | None, theirs: Spread | None
) -> dict[str, Any]:
    return {
        "method": group.method if group else row.method if row else "",
        "variant": group.variant if group else "",
        "paper_table": row.table if row else None,
        "paper_row": row.words if row else None,
        "split": cell[0],
        "subset": cell[1],
        "ours_mean": mine.mean if mine else None,
        "ours_std": mine.deviation if mine else None,
        "paper_mean": theirs.mean if theirs else None,
        "paper_std": theirs.deviation if theirs else None,
        "difference": mine.mean - theirs.mean if mine and theirs else None,
    }


def _entry(spread: Spread | None) -> Entry:
    return Entry(spread.text("accuracy") if spread else "–")


def _plain(value: float | None) -> Entry:
    return Entry("–" if value is None else f"{value:,.2f}")
