"""The tables about the oracle: which methods it tunes, what it found, and how far the defaults are from it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bench.strangers.choice import CHOSEN, ranking
from bench.strangers.oracle import in_complete_rounds, regrets
from bench.strangers.summary import KEPT, cell_of

Row: TypeAlias = Mapping[str, Any]
WORST, MIDDLE = 6, {"adjacent": 2, "remote": 1}  # the protocol's targets, in points


def choice(rows: Sequence[Row]) -> str:
    """Return the methods in the order of their regret on development tasks; the first four are tuned."""
    lines = ["| method | mean regret | valid on | trials on each task |", "|---|---|---|---|"]
    found = ranking(rows)
    for place, (name, about) in enumerate(found.items()):
        shown = f"**{name}**" if place < CHOSEN else name
        trials = {_rounds([row for row in rows if row["task"] == task], list(found)) for task in _tasks(rows)}
        count = _range(trials)
        lines.append(f"| {shown} | {about['regret']:.1f} | {about['valid']} of {about['tasks']} tasks | {count} |")
    return "\n".join(lines)


def oracle(rows: Sequence[Row]) -> str:
    """Return the oracle of every cell beside the default, on the half of the test data that was not used to choose."""
    methods = _methods(rows)
    lines = [
        "| task | seed | trials each | oracle | adjacent test: default, oracle | remote test: default, oracle |",
        "|---|---|---|---|---|---|",
    ]
    for task in _tasks(rows):
        cells = [dict(row) for row in rows if row["task"] == task]
        count = _rounds(cells, methods)
        found = regrets(cells, methods)
        if not found:
            lines.append(f"| {task} | | {count} | no valid trial | | |")
        for one in found:
            how = ", ".join(f"{name} {_short(value)}" for name, value in one["settings"].items()) or "its default"
            default = next(row for row in cells if row["method"] is None and row["seed"] == one["seed"])
            pairs = [
                f"{100 * default[f'second {name}']:.1f}, {100 * default[f'second {name}'] + one[name]:.1f}"
                if name in one
                else "–"
                for name in KEPT
            ]
            lines.append(f"| {task} | {one['seed']} | {count} | {one['method']}: {how} | {' | '.join(pairs)} |")
    return "\n".join([*lines, "", regret_in_words(rows)])


def regret_in_words(rows: Sequence[Row]) -> str:
    """Return the regret over all cells."""
    found = [
        one for task in _tasks(rows) for one in regrets((dict(r) for r in rows if r["task"] == task), _methods(rows))
    ]
    words = []
    for name in KEPT:
        values = [one[name] for one in found if name in one]
        words.append(f"{name} {statistics.median(values):.1f} in the median and {max(values):.1f} at worst")
    return f"Regret in points, on the half of the test data that was not used to choose: {'; '.join(words)}."


def regret_facts(rows: Sequence[Row]) -> str:
    """Return how the regrets stand against the targets, and what trials there were."""
    methods = _methods(rows)
    by_task = {task: [dict(row) for row in rows if row["task"] == task] for task in _tasks(rows)}
    found = {task: regrets(cells, methods) for task, cells in by_task.items()}
    counts = {_rounds(cells, methods) for cells in by_task.values()}
    none = [task for task, some in found.items() if not some]
    over = [
        f"{task}/{one['seed']}"
        for task, some in found.items()
        for one in some
        if any(one[name] > WORST for name in KEPT if name in one)
    ]
    failed = [
        cell_of(row)
        for task, cells in by_task.items()
        for row in cells
        if row["method"] is None
        and row["error"] == "CollapseError"
        and any(one["method"] and one["valid"] for one in cells)
    ]
    own = sum(some[0]["method"] == "adaptive" and not some[0]["settings"] for some in found.values() if some)
    tuned = ", ".join(f"`{method}`" for method in methods)
    lines = [
        f"Tuned: {tuned}, {_range(counts)} trials of each on every task. {regret_in_words(rows)} The protocol asks for "
        f"{MIDDLE['adjacent']} and {MIDDLE['remote']} in the median, {WORST} at worst.",
        f"Cells with a regret above {WORST} points: {len(over)}{_named(over)}.",
        f"Tasks where no trial is valid: {len(none)}{_named(none)}. Where the default itself is the oracle: {own}.",
        f"Cells where the default collapsed and a trial of the task is valid: {len(failed)}{_named(failed)}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _methods(rows: Sequence[Row]) -> list[str]:
    return sorted({row["method"] for row in rows if row["method"]})


def _tasks(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["task"] for row in rows))


def _rounds(rows: Sequence[Row], methods: Sequence[str]) -> int:
    """Return how many trials of each method count on a task."""
    first = min((row["seed"] for row in rows), default=0)
    some = in_complete_rounds((dict(r) for r in rows if r["method"] and r["seed"] == first), methods)
    return len(some) // len(methods)


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _named(cells: Sequence[str]) -> str:
    return f" ({', '.join(cells)})" if cells else ""
