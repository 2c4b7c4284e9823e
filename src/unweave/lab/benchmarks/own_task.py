"""A task of the user's own, wherever a benchmark is named: a request file, the folder of a run, or MODULE:FUNCTION."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api import Result, Split
from unweave.data import SUBSETS
from unweave.errors import UsageError
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask
from unweave.methods import DescentSettings
from unweave.requests import RESOLVED, Request, function_named, has_name_of_function, recipe_of
from unweave.storage import RUN, fingerprint

FILES = (".yaml", ".yml")
NO_RECIPE = (
    "needs models that are trained anew, and the task {name} has no training recipe. Name one in the request "
    "(recipe: {{epochs: …, learning_rate: …}})."
)


@dataclass(frozen=True, kw_only=True)
class OwnTask(Benchmark):
    """A task whose original model exists already. ``original`` returns it.

    With a recipe, other models can be trained like it: retrained references, shadow models, the originals of tuning.
    """

    original: Callable[[], nn.Module]
    can_retrain: bool = False

    @property
    def retrains(self) -> bool:
        """Whether the task has a recipe."""
        return self.can_retrain

    def has_trained(self, task: BenchmarkTask, subsets: tuple[str, ...] = SUBSETS) -> bool:
        """Return whether the model exists: without a recipe it is taken for other training data too."""
        return subsets == SUBSETS and (not self.can_retrain or task.train == self.load().train)

    def train(self, task: BenchmarkTask, *, seed: int, subsets: tuple[str, ...] = SUBSETS, **how: Any) -> nn.Module:
        """Return the model that exists, or train one by the recipe on other data than it was trained on."""
        if self.has_trained(task, subsets):
            return copy.deepcopy(self.original())
        if not self.can_retrain:
            raise UsageError(f"Retraining {NO_RECIPE.format(name=self.name)}")
        return super().train(task, seed=seed, subsets=subsets, **how)

    def train_briefly(self, original: nn.Module, split: Split, **how: Any) -> Result:
        """Train without the forget data for a short time, by the recipe."""
        if not self.can_retrain:
            raise UsageError(f"The goal retrain {NO_RECIPE.format(name=self.name)}")
        return super().train_briefly(original, split, **how)


def is_own(name: str) -> bool:
    """Tell whether a name means a task of the user's own.

    >>> [is_own(name) for name in ("digits", "request.yaml", "my_code:task")]
    [False, True, True]
    """
    return name.endswith(FILES) or has_name_of_function(name) or os.path.isfile(os.path.join(name, RESOLVED))


def own_task(name: str) -> OwnTask:
    """Return the task that a request file, the folder of a run, or MODULE:FUNCTION names.

    Args:
        name: The name. A function returns (model, training split, test split or None).

    Returns:
        The task. Its data is read when it is needed, once.

    Raises:
        UsageError: The request cannot be read, or the function cannot be called.
    """
    path = Path(name)
    if not os.path.exists(name) and has_name_of_function(name):
        return _of_function(name)
    return _of_request(path / RESOLVED if path.is_dir() else path)


def _of_request(file: Path) -> OwnTask:
    asked = Request.load(file).completed()
    settings, start = recipe_of(asked.recipe)
    checkpoint = asked.checkpoint()
    prepared = cache(asked.prepare)

    def load() -> BenchmarkTask:
        found = prepared()
        return BenchmarkTask(train=found.split, test=found.test, label_names=tuple(checkpoint.names))

    return OwnTask(
        name=file.resolve().parent.name if (file.parent / RUN).is_file() else file.stem,
        load=load,
        model=lambda: checkpoint.fresh(start),
        recipe=settings,
        original=lambda: prepared().model,
        can_retrain=bool(asked.recipe),
        options={"of": hashlib.sha256(file.read_bytes()).hexdigest()[:8]},
        has_tokens=checkpoint.kind == "language",
        given=lambda _: {"tokenizer": checkpoint.reader},
        notes={"model": Path(str(asked.model)).name, "data": Path(str(asked.train)).name},
    )


def _of_function(name: str) -> OwnTask:
    model, train, test = call_task(name)

    def made() -> nn.Module:
        fresh = copy.deepcopy(model)
        for module in fresh.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        return fresh

    return OwnTask(
        name=name,
        load=lambda: BenchmarkTask(train=train, test=test, label_names=()),
        model=made,
        recipe=DescentSettings(),
        original=lambda: model,
        options={"of": fingerprint(model.state_dict())[:8]},
    )


def call_task(name: str) -> tuple[nn.Module, Split, Split | None]:
    """Call MODULE:FUNCTION, and return its model and splits after a check of their kinds."""
    try:
        found = function_named(name)() if ":" in name else None
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be called: {error}") from error
    kinds: tuple[Any, ...] = (nn.Module, Split, (Split, type(None)))
    if (
        not isinstance(found, tuple)
        or len(found) != 3
        or not all(isinstance(*one) for one in zip(found, kinds, strict=True))
    ):
        raise UsageError("--from takes MODULE:FUNCTION, a function that returns (model, training split, test split).")
    return found
