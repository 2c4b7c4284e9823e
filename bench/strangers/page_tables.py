"""Tables of the pages beside those of runs: forecasts, the goal retrain for single samples, other settings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from unweave.evaluation import Votes

Row: TypeAlias = Mapping[str, Any]


def forecasts(rows: Sequence[Row]) -> str:
    """Return the forecasts beside what retrained models recognise, means over seeds, and the error over all cells."""
    lines = ["| task | request | forecast | retrained | largest error |", "|---|---|---|---|---|"]
    for name, cells in _by("task", rows).items():
        means = [100 * statistics.fmean(row[what] for row in cells) for what in ("forecast", "retrained")]
        error = 100 * max(abs(row["forecast"] - row["retrained"]) for row in cells)
        lines.append(f"| {name} | {cells[0]['request']} | {means[0]:.0f} | {means[1]:.0f} | {error:.0f} |")
    mean, middle, worst = _errors(rows, lambda row: row["forecast"])
    lines.append(
        f"\nThe error is {mean:.0f} points in the mean, {middle:.0f} in the median and {worst:.0f} at worst, over "
        f"{len(rows)} cells of {len(_by('task', rows))} tasks."
    )
    return "\n".join(lines)


def forecast_rules(rows: Sequence[Row]) -> str:
    """Return the error of several rules for the depth whose votes count."""
    rules: dict[str, Callable[[Votes], float]] = {
        "the last features": lambda votes: votes.forget[-1],
        "the first: the input": lambda votes: votes.forget[0],
        "a third of the way": lambda votes: votes.at(1 / 3),
        "half-way (taken)": lambda votes: votes.forecast,
        "two thirds": lambda votes: votes.at(2 / 3),
        "half-way, without allowing for noise": lambda votes: votes.at(1 / 2, noise=0),
    }
    lines = ["| votes at | mean error | median | worst |", "|---|---|---|---|"]
    for name, rule in rules.items():
        errors = _errors(rows, lambda row, rule=rule: rule(Votes(**_tuples(row["votes"]))))
        lines.append(f"| {name} | {' | '.join(f'{error:.1f}' for error in errors)} |")
    return "\n".join(lines)


def unseen(rows: Sequence[Row]) -> str:
    """Return how near the goal retrain comes to retrained models, beside how near these are to each other."""
    lines = [
        "| task | aim | RMIA's AUC (retrained) | losses apart | predictions apart | cost, training = 1 |",
        "|---|---|---|---|---|---|",
    ]
    for task, cells in _by("task", rows).items():
        for aim, some in _by("aim", cells).items():
            near = [f"{_mean(some, key):.2f} ({_mean(some, f'{key} retrained'):.2f})" for key in APART]
            lines.append(f"| {task} | {aim} | {' | '.join(near)} | {_mean(some, 'share'):.2f} |")
    return "\n".join(lines)


def settings(rows: Sequence[Row], defaults: Sequence[Row]) -> str:
    """Return what other settings of the default method did to a task, beside its defaults."""
    lines = [
        "| task | seed | setting | test forget (retrained) | adjacent test | remote test | cost, training = 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, cells in _by("task", rows).items():
        for row in (*(row for row in defaults if row["task"] == task), *cells):
            after, before, retrained = (row[when] for when in ("after", "before", "retrained"))
            kept = [f"{100 * before[f'test {n}']:.1f} → {100 * after[f'test {n}']:.1f}" for n in ("adjacent", "remote")]
            how = ", ".join(f"{name} {value:g}" for name, value in row["settings"].items()) or "the defaults"
            gone = _beside(after["test forget"], retrained["test forget"])
            lines.append(f"| {task} | {row['seed']} | {how} | {gone} | {' | '.join(kept)} | {row['share']:.2f} |")
    return "\n".join(lines)


def averages(rows: Sequence[Row]) -> str:
    """Return what settings change on average over tasks and seeds, beside the defaults on the same cells."""
    cells = {(row["task"], row["seed"]): row for row in rows if not row["settings"]}
    lines = [
        "| setting | cells | adjacent | remote | adjacent lost, worst | remote lost, worst | cost, training = 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for how, some in _by_setting(rows).items():
        changes, lost = [], []
        for name in ("test adjacent", "test remote"):
            there = [100 * row["after"][name] for row in some]
            usual = [100 * cells[row["task"], row["seed"]]["after"][name] for row in some]
            changes.append(f"{statistics.fmean(there) - statistics.fmean(usual):+.1f}" if how else "0")
            lost.append(f"{max(100 * row['before'][name] - now for row, now in zip(some, there, strict=True)):.1f}")
        cost = statistics.fmean(row["share"] for row in some)
        lines.append(f"| {how or 'the defaults'} | {len(some)} | {' | '.join(changes + lost)} | {cost:.2f} |")
    return "\n".join(lines)


def _by_setting(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(f"{name} {value:g}" for name, value in row["settings"].items()), []).append(row)
    return found


APART = ("rmia", "losses", "predictions")


def _beside(share: float | None, retrained: float | None) -> str:
    return "–" if share is None or retrained is None else f"{100 * share:.1f} ({100 * retrained:.1f})"


def _by(key: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _errors(rows: Sequence[Row], guess: Callable[[Row], float]) -> tuple[float, float, float]:
    errors = [100 * abs(guess(row) - row["retrained"]) for row in rows]
    return statistics.fmean(errors), statistics.median(errors), max(errors)


def _tuples(votes: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(values) for name, values in votes.items()}


def _mean(rows: Sequence[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)
