"""Shadow models, for attacks on a saved model.

They are trained by the benchmark's recipe on random halves of the forget and adjacent data (of training and test data
together), then unlearned by the same method as the examined model. A folder keeps what they predict, so an audit can
resume, or add more of them later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from unweave.api import Split, unlearn
from unweave.data import Samples
from unweave.engine import Compute, Progress, derive_seed
from unweave.errors import UsageError
from unweave.evaluation import (
    FEWEST,
    Metric,
    array,
    balanced_halves,
    confidences,
    log_likelihood_ratio,
    log_ratios,
    predict,
    relative_scores,
)
from unweave.evaluation import attack as attacks
from unweave.lab.audit.subject import Subject
from unweave.lab.benchmarks import Benchmark, BenchmarkTask
from unweave.methods import make_method
from unweave.storage import OBJECT, private_folder, read_json, read_tensors, refuse_links, require_form, write_whole

TARGETS = ("forget", "adjacent")
CHANCE = {"auc": 0.5, "balanced_accuracy": 0.5, **attacks.RATES}  # of a model that never saw the samples


class Pool:
    """The samples that shadow models draw from: forget and adjacent data of training and test together."""

    def __init__(self, train: Split, test: Split | None) -> None:
        if test is None:
            raise UsageError("Shadow models need test data.")
        shift = len(train.samples)
        self.samples = Samples(
            ConcatDataset([train.samples.dataset, test.samples.dataset]), collate=train.samples.collate
        )
        self.rows = {subset: np.concatenate([train[subset], test[subset] + shift]) for subset in TARGETS}
        self.members = {subset: len(train[subset]) for subset in TARGETS}  # the rest is test data
        self.remote, self.population = train.remote, torch.from_numpy(test.remote + shift)

    def split(self, seen: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]) -> Split:
        """Return the training data of a shadow model."""
        forget, adjacent = (self.rows[subset][seen[subset]] for subset in TARGETS)
        return Split(self.samples, forget, adjacent, self.remote)

    def look(self, model: nn.Module, device: str | None) -> dict[str, Tensor]:
        """Return a model's margins and confidences on the whole pool, and its confidences on the population."""
        found = {}
        for subset, rows in self.rows.items():
            predictions = predict(model, self.samples, torch.from_numpy(rows), device=device)
            found[f"{subset}.margins"] = predictions.margins
            found[f"{subset}.confidences"] = torch.from_numpy(confidences(predictions))
        population = predict(model, self.samples, self.population, device=device)
        return {**found, "population": torch.from_numpy(confidences(population))}


def make_shadows(
    subject: Subject,
    pool: Pool,
    count: int,
    *,
    folder: Path | None = None,
    seed: int = 0,
    device: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Tensor]]:
    """Train and unlearn shadow models, or read those in the folder. Only their predictions are kept."""
    benchmark = subject.benchmark
    if benchmark is None or subject.test is None:
        raise UsageError("Shadow models need a benchmark's recipe and test data.")
    check_shadows(subject, count, folder=folder, seed=seed)
    task = BenchmarkTask(train=subject.train, test=subject.test, label_names=())
    halves = {
        subset: balanced_halves(len(rows), count, seed=derive_seed(seed, "halves", subset))
        for subset, rows in pool.rows.items()
    }
    made = []
    for number in range(count):
        file = folder / f"shadow-{number:04d}.safetensors" if folder else None
        if file is not None and file.exists():
            made.append(read_tensors(file))
            continue
        say(f"shadow model {number + 1} of {count}")
        seen = {subset: marks[number] for subset, marks in halves.items()}
        model = _shadow(subject, benchmark, replace(task, train=pool.split(seen)), number, seed=seed, device=device)
        found = pool.look(model, device) | {f"{subset}.seen": torch.from_numpy(mark) for subset, mark in seen.items()}
        if file is not None:
            write_whole(file, safetensors.torch.save(found))
        made.append(found)
    return made


def shadow_metrics(
    subject: Subject,
    pool: Pool,
    shadows: Sequence[Mapping[str, Tensor]],
    *,
    resamples: int,
    seed: int,
    device: str | None = None,
) -> list[Metric]:
    """Return U-LiRA's numbers for both subsets and, for adjacent data, RMIA's with four shadow models."""
    target = pool.look(subject.model, device)
    found = []
    for subset in TARGETS:
        seen = np.stack([shadow[f"{subset}.seen"].numpy() for shadow in shadows])
        margins = np.stack([array(shadow[f"{subset}.margins"]) for shadow in shadows])
        ratio = log_likelihood_ratio(array(target[f"{subset}.margins"]), margins, seen)
        cut = pool.members[subset]
        numbers = attacks.judge(ratio[:cut], ratio[cut:], resamples=resamples, seed=seed)
        note = f"With {len(shadows)} shadow models; take 64 or more to rely on it." if len(shadows) < 64 else ""
        rows = attacks.as_metrics(
            "mia_ulira", numbers, split="train", subset=subset, others=len(ratio) - cut, note=note
        )
        # Adjacent samples were trained on and retained, so chance is not the target for them.
        yardstick = CHANCE if subset == "forget" else {}
        found += [
            row.beside(reference=yardstick.get(row.metric.removeprefix("mia_ulira_")), before=None) for row in rows
        ]
    return [*found, *_rmia_on_adjacent(pool, target, shadows[:4], resamples=resamples, seed=seed)]


def _rmia_on_adjacent(
    pool: Pool, target: Mapping[str, Tensor], shadows: Sequence[Mapping[str, Tensor]], *, resamples: int, seed: int
) -> list[Metric]:
    """Return RMIA's numbers for adjacent data. Each shadow model left half of it out; retrained models did not."""
    seen, near, far = (
        np.stack([shadow[name].numpy() for shadow in shadows])
        for name in ("adjacent.seen", "adjacent.confidences", "population")
    )
    scores = relative_scores(
        log_ratios(array(target["adjacent.confidences"]), near, seen=seen), log_ratios(array(target["population"]), far)
    )
    cut = pool.members["adjacent"]
    numbers = attacks.judge(scores[:cut], scores[cut:], threshold=0.5, resamples=resamples, seed=seed)
    note = f"With {len(shadows)} shadow models as references."
    others = len(scores) - cut
    return attacks.as_metrics("mia_rmia", numbers, split="train", subset="adjacent", others=others, note=note)


def _shadow(
    subject: Subject, benchmark: Benchmark, task: BenchmarkTask, number: int, *, seed: int, device: str | None
) -> nn.Module:
    own = derive_seed(seed, "shadow", number) % 2**31
    model = benchmark.train(task, seed=own, device=device, progress=False)
    if subject.method == "original":
        return model
    chosen = make_method(subject.method or "", subject.settings).with_given(
        initial=lambda: benchmark.initial(own),
        reference=lambda: benchmark.train_briefly(model, task.train, seed=own, device=device),
        **benchmark.given(task),
    )
    return unlearn(
        model,
        task.train,
        chosen,
        seed=own,
        compute=Compute(device),
        guard=None,  # the examined model may have collapsed, so its shadow models may too
        callbacks=[Progress(show=False)],
    ).model


def obstacle(subject: Subject, shadows: int) -> str:
    """Return why shadow models are impossible; empty if they are possible."""
    if not shadows:
        return "No shadow models were requested."
    if subject.benchmark is None:
        return "Shadow models are trained by a benchmark's recipe, but this model belongs to no benchmark."
    if not subject.benchmark.retrains:
        return "Shadow models are trained by a recipe, but the request names none."
    for split in (subject.train, subject.test):
        for subset in TARGETS:
            if split is None or len(split[subset]) < FEWEST:
                return f"U-LiRA needs {FEWEST} {subset} samples in the training data and in the test data."
    return ""


def check_shadows(subject: Subject, count: int, *, folder: Path | None, seed: int) -> None:
    """Raise an error for an invalid number of shadow models or an unusable folder, before anything is trained."""
    balanced_halves(0, count, seed=seed)  # checks the number
    if folder is not None:
        _check_folder(folder, subject, seed)


def _check_folder(folder: Path, subject: Subject, seed: int) -> None:
    """Raise an error if the folder holds shadow models of another kind."""
    kind = {
        "benchmark": subject.benchmark.title if subject.benchmark else None,
        "method": subject.method,
        "settings": dict(subject.settings),
        "seed": seed,
        "train": subject.train.hash,
        "test": subject.test.hash if subject.test else None,
    }
    try:
        private_folder(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder} cannot be a folder for shadow models: a file is in the way. Choose another folder."
        ) from error
    refuse_links(folder)
    file = folder / "shadows.json"
    if not file.exists():
        write_whole(file, (json.dumps(kind, indent=2) + "\n").encode())
        return
    before = read_json(file)
    require_form(before, OBJECT, str(file))
    changed = sorted(key for key, value in json.loads(json.dumps(kind)).items() if before.get(key) != value)
    if changed:
        raise UsageError(f"{folder} holds shadow models with another {', '.join(changed)}. Choose another folder.")
