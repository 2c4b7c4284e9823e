"""The numbers of the attacks, from the margins that `models` keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from sklearn.metrics import roc_auc_score, roc_curve

from unweave import UsageError
from unweave.evaluation import klom, left_out_ratios, told_right

RATES = {"tpr_1": 0.01, "tpr_01": 0.001}
RESAMPLES, LEVEL = 200, (2.5, 97.5)
SUBSETS = ("forget", "adjacent")
ABOUT = "attacks.json"
CHANCE = 0.5


def numbers_of(folder: Path) -> dict[str, Any]:
    """Return every number of the attacks in a folder, with the counts of models that they are from."""
    about = json.loads((folder / ABOUT).read_text())
    found = {"shadow": _models(folder, "shadow"), "whole": _models(folder, "whole")}
    retrained = _models(folder, "retrained").get("retrain", [])
    if not found["shadow"] or len(retrained) < 4:
        raise UsageError(f"{folder} has too few models: run `python -m bench.attacks run` to its end.")
    ulira = [
        {"method": label.replace("+", " "), "subset": subset, **_ulira(models, subset)}
        for label, models in sorted(found["shadow"].items())
        for subset in SUBSETS
    ]
    count = min([len(retrained) // 2, *map(len, found["whole"].values())])
    sides = {label: models[:count] for label, models in sorted(found["whole"].items())}
    sides["retrain"] = retrained[count : 2 * count]  # its distance from itself, with as many models
    distances = [
        {
            "method": label.replace("+", " "),
            "data": name,
            "models": count,
            **_klom(models, retrained[:count], name, cut),
        }
        for label, models in sides.items()
        for name, cut in _data(about["members"]).items()
    ]
    return {**about, "ulira": ulira, "klom": distances}


def _models(folder: Path, kind: str) -> dict[str, list[dict[str, np.ndarray]]]:
    """Return what the models of a kind say, by label, in the order of their numbers."""
    found: dict[str, list[dict[str, np.ndarray]]] = {}
    for file in sorted((folder / "margins").glob(f"{kind}-*.safetensors")):
        found.setdefault(file.name.partition(".")[2].removesuffix(".safetensors"), []).append(load_file(file))
    return found


def _ulira(models: list[dict[str, np.ndarray]], subset: str) -> dict[str, Any]:
    """Return the attack's numbers over all models and samples, and what it knows of single samples.

    Intervals are over models: they are drawn with replacement, each with all of its samples.
    """
    margins = np.stack([model[f"{subset}.margins"] for model in models]).astype(np.float64)
    seen = np.stack([model[f"{subset}.seen"] for model in models])
    ratios = left_out_ratios(margins, seen)
    right, low, high = told_right(ratios, seen)
    values = _rates(ratios, seen)
    generator = np.random.default_rng(0)
    drawn = [generator.integers(0, len(models), len(models)) for _ in range(RESAMPLES)]
    bounds = np.percentile([list(_rates(ratios[some], seen[some]).values()) for some in drawn], LEVEL, axis=0)
    worst = int(np.argmax(right))
    return {
        "models": len(models),
        "samples": margins.shape[1],
        **{name: [value, *bounds[:, place]] for place, (name, value) in enumerate(values.items())},
        "sample_median": float(np.median(right)),
        "sample_95th": float(np.percentile(right, 95)),
        "sample_most": [float(right[worst]), float(low[worst]), float(high[worst])],
        "above_chance": float((low > CHANCE).mean()),  # by chance 0.025 of the samples at most
    }


def _rates(ratios: np.ndarray, seen: np.ndarray) -> dict[str, float]:
    truth, scores = seen.ravel(), ratios.ravel()
    false_alarms, hits, _ = roc_curve(truth, scores, drop_intermediate=False)
    found = {"auc": float(roc_auc_score(truth, scores))}
    return found | {name: float(hits[false_alarms <= rate].max()) for name, rate in RATES.items()}


def _data(members: Mapping[str, int]) -> dict[str, tuple[str, slice]]:
    """Return the data on which models are compared: the key of its margins, and its part."""
    found = {}
    for subset in SUBSETS:
        found[f"train {subset}"] = (subset, slice(0, members[subset]))
        found[f"test {subset}"] = (subset, slice(members[subset], None))
    return {**found, "train remote": ("remote", slice(None))}


def _klom(
    models: list[dict[str, np.ndarray]], others: list[dict[str, np.ndarray]], name: str, cut: tuple[str, slice]
) -> dict[str, Any]:
    subset, part = cut
    sides = [np.stack([one[f"{subset}.margins"][part] for one in some]).astype(np.float64) for some in (models, others)]
    divergence = klom(*sides)
    drawn = np.random.default_rng(0).integers(0, len(divergence), (RESAMPLES, len(divergence)))
    bounds = np.percentile(divergence[drawn].mean(axis=1), LEVEL)
    return {
        "samples": len(divergence),
        "mean": [float(divergence.mean()), *map(float, bounds)],
        "p95": float(np.percentile(divergence, 95)),
    }
