"""The tables of docs/peers.md, from committed rows. `python -m bench.peers.page` writes them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "peers.md"
RESULTS = ROOT / "results" / "peers"
TABLES = ("digits",)
PARTS = [f"{part} {subset}" for part in ("train", "test") for subset in ("forget", "adjacent", "remote")]
HEAD = (
    "| tool | method | settings | train forget | adjacent | remote | test forget | adjacent | remote "
    "| sample gradients | seconds of a core | seeds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)
SHOWN = ("model", "default", "tuned")
Row = dict[str, Any]


def read(benchmark: str) -> list[Row]:
    """Return the committed rows of a benchmark."""
    return [json.loads(line) for line in (RESULTS / f"{benchmark}.jsonl").read_text(encoding="utf-8").splitlines()]


def table(rows: Sequence[Row]) -> str:
    """Return a line for each tool, method and way of setting it, means over seeds."""
    shown = [row for row in rows if row["kind"] in SHOWN]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in shown:
        groups.setdefault((row["tool"], row["method"], row["kind"]), []).append(row)
    tools = list(dict.fromkeys(row["tool"] for row in shown))
    order = sorted(groups, key=lambda key: tools.index(key[0]))
    return "\n".join([HEAD, *(_line(groups[key], rows) for key in order)])


def versions(rows: Iterable[Row]) -> str:
    """Return which version of each tool ran, and on what."""
    found: dict[str, str] = {}
    for row in rows:
        if row["tool"] == "unweave" or "versions" not in row:
            continue
        said = {**row.get("peer", {}), **row["versions"]}
        commit = f", commit {row['commit of tool'][:7]}" if row["commit of tool"] else ""
        found[row["tool"]] = f"- {row['tool']}{commit}: {_listed(said)}; stand-ins for {', '.join(row['stand_ins'])}."
    commits = sorted({row["provenance"]["commit"][:7] for row in rows if row["tool"] == "unweave"})
    machines = {(row["provenance"]["hardware"]["device"], row["provenance"]["hardware"]["cpu_cores"]) for row in rows}
    where = ", ".join(f"{device} with {cores} cores, of which a run has one" for device, cores in sorted(machines))
    return "\n".join([f"- unweave, commit {', '.join(commits)}. Hardware: {where}.", *found.values()])


def filled(text: str) -> str:
    """Return the page with every table as the committed rows have it."""
    parts = {f"peers {name}": table(read(name)) for name in TABLES}
    parts["peers versions"] = versions([row for name in TABLES for row in read(name)])
    for name, part in parts.items():
        marks = f"<!-- {name} -->", "<!-- end -->"
        text, found = re.subn(
            f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})",
            lambda m, p=part: f"{m[1]}\n{p}\n\n{m[2]}",
            text,
            flags=re.S,
        )
        if found != 1:
            raise ValueError(f"{PAGE} has {found} places for {name!r}, but needs one.")
    return text


def _line(group: Sequence[Row], rows: Sequence[Row]) -> str:
    first, done = group[0], [row for row in group if not row["error"]]
    seeds = str(len(group)) if len(done) == len(group) else f"{len(done)} of {len(group)}"
    cells = [first["tool"], first["method"], _settings(first, rows)]
    if not done:
        cells += [first["error"], *[""] * (len(PARTS) - 1), _count(group), _seconds(group), seeds]
    else:
        accuracies = (statistics.fmean(row["after"][part] for row in done) for part in PARTS)
        cells += [*(f"{100 * value:.1f}" for value in accuracies), _count(done), _seconds(done), seeds]
    return f"| {' | '.join(cells)} |"


def _settings(row: Row, rows: Sequence[Row]) -> str:
    if row["kind"] != "tuned":
        return {"default": "defaults", "model": "–"}[row["kind"]]
    trials = [one for one in rows if one["kind"] == "trial" and one["method"] == row["method"]]
    mine = sum(one["tool"] == row["tool"] for one in trials)
    best = ", the defaults" if row["number"] == 0 else ""
    return f"best of {mine} trials{best}"


def _count(rows: Sequence[Row]) -> str:
    there = [row["gradients"] for row in rows if "gradients" in row]
    return f"{statistics.fmean(there):,.0f}" if there else "–"


def _seconds(rows: Sequence[Row]) -> str:
    there = [row["cpu_seconds"] for row in rows if "cpu_seconds" in row]
    return f"{statistics.fmean(there):.1f}" if there else "–"


def _listed(said: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in said.items())


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
