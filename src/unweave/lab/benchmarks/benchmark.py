"""A benchmark: data, model, training recipe, split, and the settings of every method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from rich.progress import Progress as Display
from torch import nn

from unweave.api import Result, Split, unlearn
from unweave.data import SUBSETS
from unweave.engine import (
    CheckpointFolder,
    Compute,
    Progress,
    ProgressLine,
    StopWhen,
    Workbench,
    derive_seed,
    run_phases,
)
from unweave.engine.compiling import Compile
from unweave.methods import Descent, DescentSettings, Method, Retrain, find_method
from unweave.runtime import Precision, pick_device
from unweave.settings import Search, Settings, setting

BRIEF = (
    0.2  # of the recipe's epochs: enough to learn what retained data teaches about forget data (docs/what-we-tried.md)
)

# Values by method, profile and setting.
MethodSettings: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, Any]]]"
# Search spaces by method and setting.
MethodSearches: TypeAlias = "Mapping[str, Mapping[str, Search]]"


@dataclass(frozen=True, kw_only=True)
class BenchmarkTask:
    """A benchmark's data: training and test split, and the names of labels and fine classes.

    A task of the user's own may have no test data.
    """

    train: Split
    test: Split | None
    label_names: tuple[str, ...]
    fine_names: tuple[str, ...] = ()
    fine: tuple[int, ...] = ()  # the fine class of every training sample
    questions: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # of language models, by group
    rows: Sequence[Mapping[str, Any]] = ()  # of language models: the training questions, with wrong answers if known
    wording: Any = None  # of language models: tokenizer and template
    development: Callable[[], BenchmarkTask] | None = None  # a like task with other data to forget, to tune on

    def sizes(self) -> str:
        """Return the size of each subset as text: a copy of a data set may be incomplete."""
        train, test = (
            None if split is None else " / ".join(f"{len(split[subset]):,}" for subset in SUBSETS)
            for split in (self.train, self.test)
        )
        return f"{train} ({' / '.join(SUBSETS)}), {test or 'none'} for testing"


class Train(Descent):
    """Train from the initial weights."""

    name = "train"


@dataclass(frozen=True, kw_only=True)
class Options(Settings):
    """The options of every benchmark; most have more."""

    small: bool = setting(False, help="Little data and a tiny model, to try everything on two cores in minutes.")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Everything needed to train a model and unlearn from it, with all options chosen.

    ``settings`` holds each method's values for this benchmark, by profile; they override the method's own profile of
    that name. ``notes`` tell a reader of the numbers which data and model they are for, and where the initial weights
    come from.
    """

    name: str
    load: Callable[[], BenchmarkTask]
    model: Callable[[], nn.Module]
    recipe: DescentSettings
    settings: MethodSettings = field(default_factory=dict)
    searches: MethodSearches = field(default_factory=dict)  # where they replace what a method declares
    tuned: Mapping[str, Any] = field(default_factory=dict)  # the provenance of the profiles from `unweave tune`
    options: Mapping[str, Any] = field(default_factory=dict)  # those that differ from the default
    only_split: tuple[str, ...] = ()  # options that select what to forget and do not change training
    alike: Mapping[str, Collection[Any]] = field(default_factory=dict)  # values of options that share tuned settings
    notes: Mapping[str, str] = field(default_factory=dict)
    has_tokens: bool = False  # whether labels are the tokens of answers
    given: Callable[[BenchmarkTask], Mapping[str, Any]] = lambda _: {}  # what methods are given besides settings

    @property
    def retrains(self) -> bool:
        """Whether models can be trained anew by the recipe."""
        return True

    def has_trained(self, task: BenchmarkTask, subsets: tuple[str, ...] = SUBSETS) -> bool:
        """Return whether the model that `train` returns for these subsets of a task exists already."""
        return False

    @property
    def title(self) -> str:
        """The name and the options that differ from the default."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    def about(self, task: BenchmarkTask) -> dict[str, Any]:
        """Describe the benchmark and its data, for a run's configuration."""
        notes = {**self.notes, "samples": task.sizes()}
        return {"benchmark": self.name, "options": dict(self.options), "notes": notes}

    def trains_like(self, name: str, options: Mapping[str, Any]) -> bool:
        """Return whether the benchmark with this name and these options trains the same originals.

        Options that only select what to forget may differ.
        """
        return name == self.name and self._of_training(options) == self._of_training(self.options)

    def is_tuned_like(self, name: str, options: Mapping[str, Any]) -> bool:
        """Return whether settings that were tuned on the benchmark with this name and these options apply here.

        They apply if both train the same originals. The values in ``alike`` count as the option's default.
        """
        mine, theirs = (
            {
                option: value
                for option, value in self._of_training(some).items()
                if value not in self.alike.get(option, ())
            }
            for some in (self.options, options)
        )
        return name == self.name and theirs == mine

    def _of_training(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {option: value for option, value in options.items() if option not in self.only_split}

    def method(self, name: str | type[Method]) -> type[Method]:
        """Return a method with the profiles that this benchmark adds, such as ``tuned``.

        `settings_for` returns their values.
        """
        found = find_method(name)
        return found.with_profiles(self.settings.get(found.name, {}))

    def searched(self, method: type[Method]) -> dict[str, Search]:
        """Return the search space of every setting of a method that is tuned here."""
        return {**method.searched(), **self.searches.get(method.name, {})}

    def settings_for(self, method: type[Method], profile: str | None) -> Mapping[str, Any]:
        """Return this benchmark's values for a method under a profile (None: the method's default)."""
        if method.name == "retrain":
            return self.recipe.to_dict()
        return self.settings.get(method.name, {}).get(profile or next(iter(method.profiles)), {})

    def initial(self, seed: int) -> nn.Module:
        """Return the model before training. The state of the caller's random numbers does not change."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()

    def train(
        self,
        task: BenchmarkTask,
        *,
        seed: int,
        subsets: tuple[str, ...] = SUBSETS,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
        compile: Compile = "auto",
        progress: bool | Display | None = None,
        checkpoints: CheckpointFolder | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> nn.Module:
        """Train the benchmark's model by its recipe on all of the training data: the original.

        With fewer ``subsets``, it is trained on those only; without the forget data, it is a retrained model. With
        ``checkpoints``, training resumes from the newest and can stop at one (see `run_phases`).
        """
        where = pick_device(device)
        model = self.initial(seed).to(where)
        bench = Workbench(model, task.train, device=where, seed=seed, precision=precision, compile=compile)
        run_phases(
            bench,
            [Train(self.recipe, subsets=subsets)],
            checkpoints=checkpoints,
            resume=True,
            progress=ProgressLine(show=progress, title=self.name),
            callbacks=[StopWhen(stop)] if stop else [],
        )
        return bench.release().to("cpu")

    def train_briefly(
        self,
        original: nn.Module,
        split: Split,
        *,
        seed: int,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
        compile: Compile = "auto",
    ) -> Result:
        """Train without the forget data for a fifth of the recipe's epochs: the reference of the goal ``retrain``.

        Its random numbers differ from those of a retrained model with the same seed, because that model judges it.
        """
        other = derive_seed(seed, "brief") % 2**31
        recipe = {**self.recipe.to_dict(), "epochs": max(1, round(BRIEF * self.recipe.epochs))}
        return unlearn(
            original,
            split,
            Retrain(initial=lambda: self.initial(other), **recipe),
            seed=other,
            compute=Compute(device, precision=precision, compile=compile),
            guard=None,
            callbacks=[Progress(show=False)],
        )


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A benchmark before its options are chosen: one object at the end of each file in ``benchmarks/``.

    ``build`` makes the benchmark from its options and the location of the data: a folder, ``hub``, ``hub:OWNER/NAME``
    or None. It reads no data yet.
    """

    name: str
    summary: str
    build: Callable[[Any, str | None], Benchmark]
    options: type[Options] = Options
    only_split: tuple[str, ...] = ()

    def choose(self, values: Mapping[str, Any], *, data: str | None) -> Benchmark:
        """Return the benchmark with these options."""
        chosen = self.options.parse(values)
        default = self.options().to_dict()
        different = {name: value for name, value in chosen.to_dict().items() if value != default[name]}
        return dataclasses.replace(self.build(chosen, data), options=different, only_split=self.only_split)
