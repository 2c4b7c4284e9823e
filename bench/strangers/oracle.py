"""The oracle: the best of many tuned trials, chosen on one half of the test data. Regret is what defaults lack.

docs/protocol.md has the rule. Trials are drawn at random from the methods' own search spaces, alike in every process.
Trial 0 is a method's default. `schedule` says in which order they run.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.strangers.halves import halves_of_test
from bench.strangers.originals import Case
from bench.strangers.summary import ABOVE_RETRAINED, FORGOTTEN, KEPT
from bench.strangers.training import look
from bench.strangers.tries import attempted, run
from unweave.methods import find_method
from unweave.settings import Choices, Span

TRIALS = 30
HALVES = ("first", "second")


def drawn(method: str, number: int) -> dict[str, Any]:
    """Return the settings of a trial: none for trial 0, the default.

    >>> drawn("adaptive", 0)
    {}
    >>> sorted(drawn("adaptive", 1))
    ['learning_rate', 'margin', 'reach', 'remote_weight']
    """
    if number == 0:
        return {}
    kind = find_method(method)
    seed = int.from_bytes(hashlib.sha256(f"{method} {number}".encode()).digest()[:8])
    draw = np.random.default_rng(seed)
    own = kind.on_own_models  # the profile of trial 0, if `unlearn` takes another than the first
    defaults = kind.configure(profile=own or None)
    return {name: _value(space.about(getattr(defaults, name)), draw) for name, space in sorted(kind.searched().items())}


def tried(case: Case, method: str, number: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a trial: what it recognises of both halves of the test data, and whether it is valid."""
    row: dict[str, Any] = {"task": case.task.name, "seed": case.seed, "method": method, "number": number}
    row |= {"settings": settings, "error": None, "valid": False}
    try:
        result = run(case, method, settings)
    except (RuntimeError, ValueError) as error:  # a run that fails is a trial that is not valid
        return row | {"error": type(error).__name__}
    row |= {"share": round(result.cost.sample_gradients / case.original.gradients, 4)}
    return _judged(row, result.model, case)


def default(case: Case) -> dict[str, Any]:
    """Return the row of the default method without a setting: as of a trial, with all that `try` says of a run."""
    row, result = attempted(case, None, {})
    row |= {"number": 0, "valid": False}
    return row if result is None else _judged(row, result.model, case)


def _judged(row: dict[str, Any], model: nn.Module, case: Case) -> dict[str, Any]:
    row |= accuracies(model, case)
    return row | {"valid": is_valid(row, {"test forget": _retrained_knows(case)})}


@cache
def _retrained_knows(case: Case) -> float | None:
    """Return how much of the unseen forget data a retrained model recognises."""
    return _mean(look(case.retrained.model, case.data.test)[0], case.test["forget"])


def is_valid(row: dict[str, Any], retrained: dict[str, Any]) -> bool:
    """Return whether a trial forgets as much as the protocol asks."""
    unseen = row["test forget"]
    fits = unseen is None or unseen <= retrained["test forget"] + ABOVE_RETRAINED
    return bool(row["train forget"] <= FORGOTTEN and fits)


def accuracies(model: nn.Module, case: Case) -> dict[str, float | None]:
    """Return the accuracies that decide: forget data, and both halves of kept test data."""
    train, test = look(model, case.data.train)[0], look(model, case.data.test)[0]
    halves = dict(zip(HALVES, halves_of_test(len(test)), strict=True))
    found = {"train forget": _mean(train, case.train["forget"]), "test forget": _mean(test, case.test["forget"])}
    for half, rows in halves.items():
        found |= {f"{half} {name}": _mean(test, np.intersect1d(rows, case.test[name])) for name in KEPT}
    return found


def in_complete_rounds(rows: Iterable[dict[str, Any]], methods: Iterable[str]) -> list[dict[str, Any]]:
    """Return the trials of one task whose number every method has been through, and every one before it.

    >>> row = {"method": "a", "number": 0}
    >>> len(in_complete_rounds([row, {"method": "a", "number": 1}, {"method": "b", "number": 0}], ["a", "b"]))
    2
    """
    rows = list(rows)
    numbers = [{row["number"] for row in rows if row["method"] == method} for method in methods]
    rounds = next(number for number in itertools.count() if not all(number in of for of in numbers))
    return [row for row in rows if row["number"] < rounds]


def best_of(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the valid trial with the highest mean of adjacent and remote accuracy on the first half."""
    return max((row for row in rows if row["valid"]), key=_on_first, default=None)


def regrets(rows: Iterable[dict[str, Any]], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Return the regret of every seed of one task; seeds where the default or the best trial failed are not there.

    Trials are those of the first seed that has some.
    """
    rows = list(rows)
    tuned = [row for row in rows if row["method"] in methods]
    first = min((row["seed"] for row in tuned), default=0)
    best = best_of(in_complete_rounds((row for row in tuned if row["seed"] == first), methods))
    if best is None:
        return []
    oracles = {row["seed"]: row for row in tuned if _place(row) == _place(best) and not row["error"]}
    defaults = (row for row in rows if row["method"] is None and not row["error"])
    return [regret(row, oracles[row["seed"]]) for row in defaults if row["seed"] in oracles]


def regret(default: dict[str, Any], oracle: dict[str, Any]) -> dict[str, Any]:
    """Return the points of the second half that the default lacks beside the oracle, for each kept subset."""
    found = {
        name: round(100 * (oracle[f"second {name}"] - default[f"second {name}"]), 2)
        for name in KEPT
        if default[f"second {name}"] is not None
    }
    names = ("task", "seed", "method", "settings", "share", "valid")
    return {"default": {name: default[name] for name in ("share", "valid")}, **{k: oracle[k] for k in names}, **found}


def summary(regrets: Sequence[dict[str, Any]]) -> str:
    """Return regret in words."""
    words = []
    for name in KEPT:
        values = [row[name] for row in regrets]
        words.append(f"{name} {statistics.median(values):.1f} in the median, {max(values):.1f} at worst")
    return f"regret over {len(regrets)} cells, in points of test accuracy: {'; '.join(words)}"


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["method"], row["number"]


def _on_first(row: dict[str, Any]) -> float:
    return statistics.fmean(row[f"first {name}"] for name in KEPT if row[f"first {name}"] is not None)


def _mean(known: torch.Tensor, rows: np.ndarray[Any, Any]) -> float | None:
    return known[torch.from_numpy(rows)].double().mean().item() if len(rows) else None


def _value(space: Span | Choices, draw: np.random.Generator) -> Any:
    if isinstance(space, Choices):
        return space.values[int(draw.integers(len(space.values)))]
    if not space.log:
        return float(draw.uniform(space.low, space.high))
    return float(f"{math.exp(draw.uniform(math.log(space.low), math.log(space.high))):.4g}")
