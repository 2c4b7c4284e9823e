"""What a run gives back."""

from __future__ import annotations

import html
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api.verdict import Verdict
from unweave.data import RETAINED, Partition
from unweave.engine import Compute, Cost, History, advice_on
from unweave.errors import RunWarning
from unweave.evaluation import Scores, evaluate, never_seen
from unweave.methods import Method
from unweave.tasks import Task


@dataclass(eq=False, repr=False)
class Result:
    """What a run gave: the unlearned model, everything that was logged, and what it cost.

    Attributes:
        model: The unlearned copy of the model, on the device of the one that was given.
        history: What every step logged.
        cost: Seconds, samples run forward and differentiated, memory.
        settings: The method with its settings.
        config: The configuration on record.
        folder: The folder that the run wrote; None without ``out=``.
        checks: What the guard saw: losses and accuracies of held samples, by phase and step.
        original: The model that was given.
        split: The split that was unlearned with.
        test: The split of test data, if one was given.
        task: What a sample is to the model; None if nothing of the data was looked at.
        begun: When the run began, in UTC.
        compute: Device, precision and memory of the run.
        warned: Subsets that the guard warned about; None without a guard. The verdict warns about others, once.
        measured: The scores that the run took; None without a folder, where `scores` takes them on first use.

    >>> import torch, unweave as uw
    >>> split = uw.Split((torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1])), forget=[0], adjacent=[1, 2])
    >>> result = uw.unlearn(nn.Linear(6, 2), split, "ga", guard=None)
    >>> result.method, result.scores["train"]["remote"]["samples"]
    ('ga', 3)
    """

    model: nn.Module
    history: History
    cost: Cost
    settings: Method
    config: Mapping[str, Any]
    original: nn.Module
    split: Partition
    test: Partition | None
    task: Task | None
    begun: str
    folder: Path | None = None
    checks: tuple[Mapping[str, Any], ...] = ()
    compute: Compute = field(default_factory=Compute)
    warned: frozenset[str] | None = None
    measured: Scores | None = None

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.settings.name

    @cached_property
    def scores(self) -> Scores:
        """Accuracies, losses and attacks, before and after: measured during a run in a folder, otherwise now."""
        if self.measured is not None:
            return self.measured
        return evaluate(self.model, self.split, self.test, original=self.original, task=self.task, compute=self.compute)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the model forgot what it had to, and kept the rest. It is made on first use.

        With a guard, a `RunWarning` says that data was not forgotten or that kept data was lost, unless the guard has
        said so.
        """
        found = Verdict.of(
            self.scores,
            self.cost,
            goal=self.settings.goal_of_run,
            never_seen=never_seen(self.scores, self.original, self.split, self.compute),
            kept_samples=sum(len(self.split[name]) for name in RETAINED),
            trained_epochs=self.config.get("trained_epochs"),
        )
        for subset, words in found.warnings.items():
            if self.warned is not None and subset not in self.warned:
                advice = f" {advice_on(self.settings)}" if found.goal == "erase" else ""
                warnings.warn(words + advice, RunWarning, stacklevel=3)
        return found

    def __repr__(self) -> str:
        work = f"{len(self.history.rows)} steps, {self.cost.sample_gradients:,} sample gradients"
        return f"Result of {self.method}: {work}, {self.cost.seconds:.1f} s"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.verdict._repr_html_()}"
