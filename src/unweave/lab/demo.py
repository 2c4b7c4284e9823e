"""The demo: train on embedded digits, forget the 9 in four ways, compare, draw."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from unweave.api import unlearn
from unweave.engine import Compute
from unweave.evaluation import evaluate, predict
from unweave.lab.benchmarks import BenchmarkTask, find_benchmark
from unweave.lab.packages import require_package
from unweave.methods import find_method
from unweave.runs import remove_folder

METHODS = {"two-stage": "two-stage", "pgd": "plain PGD", "ft": "fine-tuning", "ga": "gradient ascent"}
MARK = "demo.json"


@dataclass(frozen=True)
class Demo:
    """The scores of every method and seed, and where the picture is."""

    scores: dict[str, list[dict[str, Any]]]
    entanglement: str
    folder: Path

    def meaning(self) -> str:
        """Explain the numbers in two sentences."""
        return meaning(self.scores)


def run_demo(folder: Path, *, seeds: int, device: str | None, say: Callable[[str], None]) -> Demo:
    """Run the demo and write its scores and its picture into a folder."""
    require_package("matplotlib", "The demo's picture")  # which is drawn at the end
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    scores: dict[str, list[dict[str, Any]]] = {}
    panels: dict[str, nn.Module] = {}
    entanglement = ""

    def note(name: str, model: nn.Module) -> None:
        found = evaluate(model, task.train, task.test, questions=(), compute=Compute(device))
        scores.setdefault(name, []).append(found.to_dict())

    for seed in range(seeds):
        say(f"seed {seed}: training the original model on {len(task.train.samples)} digits")
        original = benchmark.train(task, seed=seed, device=device)
        note("original", original)
        if seed == 0:
            panels["before"] = original
            entanglement = str(
                task.train.entanglement(original, groups=task.fine, names=task.fine_names, device=device)
            )
        for name, title in METHODS.items():
            method = find_method(name)
            settings = dict(benchmark.settings_for(method, None))
            how: dict[str, Any] = {"seed": seed, "compute": Compute(device), "guard": None}  # show a collapse
            how["profile"] = next(iter(method.profiles))
            say(f"seed {seed}: {title}")
            result = unlearn(original, task.train, method, **how, **settings)
            note(title, result.model)
            if seed == 0 and name == "two-stage":
                first = unlearn(original, task.train, method, **how, **settings | {"stage2_epochs": 0})
                panels["after stage 1"] = first.model
                panels["after two stages (W-PGD)"] = result.model
            if seed == 0 and name == "pgd":
                panels["after plain PGD"] = result.model

    order = ("before", "after stage 1", "after plain PGD", "after two stages (W-PGD)")
    _write(folder, scores, task, {title: panels[title] for title in order}, device)
    return Demo(scores, entanglement, folder)


def meaning(scores: dict[str, list[dict[str, Any]]]) -> str:
    """Explain the numbers in two sentences."""

    def mean(name: str, subset: str) -> str:
        return f"{100 * np.mean([score['train'][subset]['accuracy'] for score in scores[name]]):.1f}%"

    ours, pgd, ascent = "two-stage", METHODS["pgd"], METHODS["ga"]
    return (
        f"The two-stage method still recognises {mean(ours, 'forget')} of the training nines it was asked to forget, "
        f"and keeps {mean(ours, 'adjacent')} of their look-alikes (1, 4, 7) and {mean(ours, 'remote')} of the other "
        f"digits. Without the Wasserstein term {mean(pgd, 'forget')} of the nines come back, after fine-tuning "
        f"{mean(METHODS['ft'], 'forget')} are still known, and gradient ascent takes the look-alikes down with the "
        f"nines ({mean(ascent, 'adjacent')} left)."
    )


def _write(
    folder: Path, scores: dict[str, Any], task: BenchmarkTask, panels: dict[str, nn.Module], device: str | None
) -> None:
    """Write into a folder beside the target, then rename it to the target."""
    from unweave.lab.report import loss_distributions  # slow to import

    partial = folder.with_name(folder.name + ".partial")
    remove_folder(partial)
    partial.mkdir(parents=True)
    drawn = {}
    for title, model in panels.items():
        found = predict(model, task.train.samples, task.train.rows("forget"), device=device)
        drawn[title] = (found.losses.numpy(), float(found.correct.float().mean()))
    files = [partial / f"forget-losses.{kind}" for kind in ("png", "svg")]
    loss_distributions(drawn, classes=len(task.label_names), files=files)
    (partial / MARK).write_text(json.dumps({"scores": scores, "split": task.train.hash}, indent=2) + "\n")
    remove_folder(folder)
    partial.rename(folder)
