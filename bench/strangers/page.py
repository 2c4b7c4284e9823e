"""The tables of docs/strangers.md and others, from committed rows. `python -m bench.strangers.page` writes them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.strangers import page_entangled, page_oracle, page_tables
from bench.strangers.summary import FORGOTTEN, KEPT, cell_of, exceeds_retrained

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "strangers.md"
DEVELOPMENT = ROOT / "docs" / "strangers-development.md"
TRIED = ROOT / "docs" / "what-we-tried.md"
RESULTS = ROOT / "results" / "strangers"
NOT_YET = "Not run yet."
HEAD = (
    "| task | request | train forget | test forget (retrained) | adjacent test | remote test | cost, training = 1 |\n"
    "|---|---|---|---|---|---|---|"
)


def read(name: str) -> list[dict[str, Any]]:
    """Return the committed rows of a file."""
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a row for each task, means over its seeds."""
    names = dict.fromkeys(row["task"] for row in rows)
    return "\n".join([HEAD, *(_line([row for row in rows if row["task"] == name]) for name in names)])


def facts(rows: Sequence[dict[str, Any]]) -> str:
    """Return how the cells stand against the targets."""
    done = [row for row in rows if not row["error"]]
    left = [cell_of(row) for row in done if row["after"]["train forget"] > FORGOTTEN]
    over = [cell_of(row) for row in done if exceeds_retrained(row)]
    lines = [
        f"- {len(rows)} cells; {len(rows) - len(done)} ended with an error.",
        "- Cells in which more than 1% of the forget training samples are still recognised: "
        f"{len(left)}{_named(left)}.",
        "- Cells in which more unseen forget data is recognised than a retrained model does, plus 5 points: "
        f"{len(over)}{_named(over)}.",
    ]
    for what in KEPT:
        lost = [100 * (row["before"][f"test {what}"] - row["after"][f"test {what}"]) for row in done]
        lines.append(
            f"- Points of {what} test accuracy lost (below 0: gained): {statistics.median(lost):.1f} in the median, "
            f"{max(lost):.1f} at worst."
        )
    share = [row["share"] for row in done]
    lines.append(
        f"- Sample gradients, those of the original's training = 1: {statistics.median(share):.2f} in the median, "
        f"{max(share):.2f} at most. Processor seconds: {_ratio(done):.2f} in the median."
    )
    large = [row["share"] for row in done if row["training"] >= 1_000_000]
    if large:
        lines.append(f"- Where training took a million sample gradients or more: {max(large):.2f} at most.")
    lines.append(f"- Cells in which a warning was given: {sum(bool(row['warnings']) for row in done)}.")
    return "\n".join(lines)


def filled(text: str, page: Path | None = None) -> str:
    """Return a page, that on strangers if none is named, with every table as the committed rows have it."""
    parts = {DEVELOPMENT: _developed, TRIED: _tried}.get(page or PAGE, _judged)
    for name, part in parts().items():
        marks = f"<!-- {name} -->", "<!-- end -->"
        text, found = re.subn(
            f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})",
            lambda m, p=part: f"{m[1]}{p}\n{m[2]}",
            text,
            flags=re.S,
        )
        if found != 1:
            raise ValueError(f"{page or PAGE} has {found} places for {name!r}, but needs one.")
    return text


def _developed() -> dict[str, str]:
    return {
        "development": table(read("development.jsonl")),
        "development facts": facts(read("development.jsonl")),
        "two-stage": table(read("two-stage.jsonl")),
        "two-stage facts": facts(read("two-stage.jsonl")),
        "forecasts": page_tables.forecasts(read("forecasts.jsonl")),
        "unseen": page_tables.unseen(read("unseen.jsonl")),
        "oracle": page_oracle.oracle(read("oracle.jsonl")),
    }


def _judged() -> dict[str, str]:
    return {
        "judgement": table(read("judgement.jsonl")),
        "judgement facts": facts(read("judgement.jsonl")),
        "choice": _of("choice.jsonl", page_oracle.choice),
        "second look": _of("judged.jsonl", lambda rows: table(_defaults(rows))),
        "second look facts": _of(
            "judged.jsonl", lambda r: "\n".join([facts(_defaults(r)), page_oracle.regret_facts(r)])
        ),
        "judged oracle": _of("judged.jsonl", page_oracle.oracle),
        "entangled": _of("entangled.jsonl", page_entangled.table),
        "entangled facts": _of("entangled.jsonl", page_entangled.facts),
    }


def _of(name: str, write: Callable[[list[dict[str, Any]]], str]) -> str:
    """Return a part that is made of the rows of a file, or that they are missing."""
    return write(read(name)) if (RESULTS / name).exists() else NOT_YET


def _judged_facts(rows: list[dict[str, Any]]) -> str:
    return f"{facts(_defaults(rows))}\n{page_oracle.regret_facts(rows)}"


def _defaults(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of the defaults, task by task as in the table of the first look."""
    order = list(dict.fromkeys(row["task"] for row in read("judgement.jsonl")))
    found = [row for row in rows if row["method"] is None]
    return sorted(found, key=lambda row: (order.index(row["task"]), row["seed"]) if row["task"] in order else (99, 0))


def _tried() -> dict[str, str]:
    return {
        "forecast rules": page_tables.forecast_rules(read("forecasts.jsonl")),
        "adaptive settings": page_tables.settings(read("tried.jsonl"), read("development.jsonl")),
        "settings on average": page_tables.averages(read("settings.jsonl")),
        "single samples": page_tables.averages(read("erase.jsonl")),
    }


def _line(rows: Sequence[dict[str, Any]]) -> str:
    done = [row for row in rows if not row["error"]]
    if not done:
        return f"| {rows[0]['task']} | {rows[0]['request']} | {rows[0]['error']} | | | | |"
    forget = _mean(row["after"]["test forget"] for row in done)
    retrained = _mean(row["retrained"]["test forget"] for row in done)
    changes = [
        " → ".join(_percent(_mean(row[when][f"test {what}"] for row in done)) for when in ("before", "after"))
        for what in KEPT
    ]
    unseen = "–" if forget is None else f"{_percent(forget)} ({_percent(retrained)})"
    cells = [
        rows[0]["task"],
        rows[0]["request"],
        _percent(_mean(row["after"]["train forget"] for row in done)),
        unseen,
        *changes,
        f"{_mean(row['share'] for row in done):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _ratio(rows: Sequence[dict[str, Any]]) -> float:
    return statistics.median(row["cpu_seconds"] / max(row["training_seconds"], 0.01) for row in rows)


def _named(cells: Sequence[str]) -> str:
    return f" ({', '.join(cells)})" if cells else ""


if __name__ == "__main__":
    for page in (PAGE, DEVELOPMENT, TRIED):
        page.write_text(filled(page.read_text(encoding="utf-8"), page), encoding="utf-8")
