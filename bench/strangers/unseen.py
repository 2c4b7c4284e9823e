"""The goal retrain for single samples, with what a user has: held-out data. How near it comes to retrained models.

Half of the test data is held out and shows what losses unseen samples have; the other half judges. A distance is good
if it is at most twice that between models that were retrained with other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import unweave as uw
from bench.strangers.halves import halves_of_test
from bench.strangers.originals import Case
from unweave.data import Partition

NUMBERS = {
    "rmia": ("train", "forget", "mia_rmia_auc"),
    "losses": ("train", "forget", "loss_wasserstein"),
    "predictions": ("train", "forget", "prediction_total_variation"),
    "known": ("train", "forget", "accuracy"),
    "adjacent": ("test", "adjacent", "accuracy"),
    "remote": ("test", "remote", "accuracy"),
}


def as_unseen(case: Case, retrained: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Return a row for the original, for the goal retrain, and for the same with a bare list of held-out losses."""
    held, test = _parts(case)
    losses = _losses(case.original.model, held)
    aims: dict[str, Callable[[], Any]] = {
        "original": lambda: "original",
        "held-out data": lambda: uw.Unweave(goal="retrain", reference=held),
        "a list of its losses": lambda: uw.Unweave(goal="retrain", reference=losses),
    }
    rows = []
    for name, method in aims.items():
        result = uw.unlearn(
            case.original.model,
            case.train,
            method(),
            seed=case.seed,
            compute=uw.Compute("cpu"),
            callbacks=[uw.Progress(show=False)],
        )
        scores = uw.evaluate(
            result.model, case.train, test, reference=list(retrained), compute=uw.Compute("cpu"), seed=case.seed
        )
        found = {metric.place: metric for metric in scores.metrics}
        row = {"task": case.task.name, "request": case.task.request, "seed": case.seed, "aim": name}
        row |= {key: found[place].value for key, place in NUMBERS.items()}
        row |= {f"{key} retrained": found[place].reference for key, place in NUMBERS.items()}
        rows.append(row | {"share": round(result.cost.sample_gradients / case.original.gradients, 4)})
    return rows


def _parts(case: Case) -> tuple[uw.Split, uw.Split]:
    """Return held-out data, all of it adjacent, and the data that judges."""
    part = case.data.test
    first, second = halves_of_test(len(part.labels))
    rows = torch.from_numpy(first)
    held = uw.Split((part.inputs[rows], part.labels[rows]), [], range(len(first)), [], allow_empty=True)
    adjacent, remote = (np.intersect1d(case.test[name], second) for name in ("adjacent", "remote"))
    return held, uw.Split((part.inputs, part.labels), [], adjacent, remote, allow_empty=True)


def _losses(model: nn.Module, held: Partition) -> list[float]:
    inputs, labels = held.samples.dataset.data
    model.eval()
    with torch.no_grad():
        found: list[float] = nn.functional.cross_entropy(model(inputs), labels, reduction="none").tolist()
    return found
