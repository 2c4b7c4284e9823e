"""What a benchmark is: data, model, training recipe, split, and the settings of every method on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.data import pick_device
from unweave.engine import Workbench, run_phases
from unweave.engine.progress import ProgressLine
from unweave.methods import Method
from unweave.methods.descent import Descent, DescentSettings
from unweave.split import SUBSETS, Split


@dataclass(frozen=True, kw_only=True)
class Task:
    """A benchmark's data: training and test split, and the names of the labels and of the fine classes."""

    train: Split
    test: Split
    label_names: tuple[str, ...]
    fine_names: tuple[str, ...] = ()
    fine: tuple[int, ...] = ()  # the fine class of every training sample


class Train(Descent):
    """Train from the initial weights."""

    name = "train"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Everything needed to train a model and to make it forget.

    ``settings`` holds, for each method, the values that fit this benchmark, by profile; they stand above the
    method's own profile of that name.
    """

    name: str
    summary: str
    load: Callable[[Path | None], Task]
    model: Callable[[], nn.Module]
    recipe: DescentSettings
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def settings_for(self, method: Method, profile: str | None) -> Mapping[str, Any]:
        """Return this benchmark's values for a method under a profile (None: the method's default)."""
        if method.name == "retrain":
            return self.recipe.to_dict()
        return self.settings.get(method.name, {}).get(profile or next(iter(method.profiles)), {})

    def initial(self, seed: int) -> nn.Module:
        """Return the model before training; the caller's random numbers are left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()

    def train(
        self,
        task: Task,
        *,
        seed: int,
        device: str | torch.device | None = None,
        progress: bool | None = None,
    ) -> nn.Module:
        """Train the benchmark's model by its recipe on all of the training data: the original."""
        where = pick_device(device)
        model = self.initial(seed)
        bench = Workbench(model.to(where), task.train, device=where, seed=seed)
        run_phases(
            bench,
            [Train(self.recipe, subsets=SUBSETS)],
            progress=ProgressLine(show=progress, title=self.name),
        )
        return model.to("cpu")
