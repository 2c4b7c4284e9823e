"""One run of a method on a task: what the model knew before and knows after, and what that cost."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

import unweave as uw
from bench.strangers.originals import Case
from bench.strangers.training import look
from unweave.data import SUBSETS


def attempt(case: Case, method: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a method on the original of a case, and return a row of numbers; an error is a row too."""
    return attempted(case, method, settings)[0]


def attempted(case: Case, method: str | None, settings: Mapping[str, Any]) -> tuple[dict[str, Any], uw.Result | None]:
    """Return the row of `attempt`, and the result unless there was an error."""
    task, original = case.task, case.original
    row: dict[str, Any] = {
        "task": task.name,
        "half": task.half,
        "family": task.family,
        "request": task.request,
        "seed": case.seed,
        "method": method,
        "settings": dict(settings),
        "training": original.gradients,
        "training_seconds": original.seconds,
        "before": six(original.model, case),
        "retrained": six(case.retrained.model, case) if case.has_retrained else None,
    }
    result, told = None, []
    begun, busy = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = run(case, method, settings)
        except Exception as error:  # whatever a stranger would see
            row |= {"error": type(error).__name__, "message": str(error)}
        told = [str(warning.message) for warning in caught if issubclass(warning.category, uw.RunWarning)]
    row |= {"seconds": round(time.perf_counter() - begun, 2), "cpu_seconds": round(time.process_time() - busy, 2)}
    row["warnings"] = told
    if result is not None:
        gradients = result.cost.sample_gradients
        share = round(gradients / original.gradients, 4)
        row |= {"error": None, "gradients": gradients, "share": share, "after": six(result.model, case)}
    return row, result


def foretold(case: Case) -> dict[str, Any]:
    """Return what `inspect` forecasts of a case, and what a model that never saw the forget data recognises of it."""
    known, _ = look(case.retrained.model, case.data.train)
    inspection = case.train.inspect(case.original.model, device="cpu")
    return {
        "task": case.task.name,
        "request": case.task.request,
        "seed": case.seed,
        "forecast": inspection.still_recognised,
        "votes": asdict(inspection.votes) if inspection.votes else None,
        "retrained": known[torch.from_numpy(case.train.forget)].double().mean().item(),
    }


def run(case: Case, method: str | None, settings: Mapping[str, Any]) -> uw.Result:
    """Call `unlearn` as a user would: no method means its default."""
    return uw.unlearn(
        case.original.model,
        case.train,
        *([] if method is None else [method]),
        seed=case.seed,
        compute=uw.Compute("cpu"),
        callbacks=[uw.Progress(show=False)],
        **settings,
    )


def six(model: nn.Module, case: Case) -> dict[str, float | None]:
    """Return the accuracies and mean losses on the subsets of training and test data; None where there is no sample."""
    found: dict[str, float | None] = {}
    for name, split, part in (("train", case.train, case.data.train), ("test", case.test, case.data.test)):
        known, losses = look(model, part)
        for subset in SUBSETS:
            rows = torch.from_numpy(split[subset])
            found[f"{name} {subset}"] = known[rows].double().mean().item() if len(rows) else None
            found[f"{name} {subset} loss"] = losses[rows].double().mean().item() if len(rows) else None
    return found
