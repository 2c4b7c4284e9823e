"""What is examined: a saved model, its data, and what is known about its origin."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api import Split
from unweave.errors import UsageError
from unweave.evaluation import Certificate
from unweave.lab.benchmarks import Benchmark, OwnTask, call_task, find_benchmark
from unweave.methods import all_methods, find_method
from unweave.record import SPLIT, TEST_SPLIT, AfterPhase, certificate_of, model_after, not_kept
from unweave.requests import RESOLVED, Request, has_name_of_function
from unweave.runs import load_weights
from unweave.storage import (
    COUNT,
    OBJECT,
    TEXT,
    configuration_file,
    find_weights,
    read_configuration,
    require_form,
)

CONFIG = {
    "benchmark?": TEXT,
    "options?": OBJECT,
    "method?": TEXT,
    "settings?": OBJECT,
    "seed?": COUNT,
    "split?": TEXT,
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to examine, its data, and what is known about its origin."""

    model: nn.Module
    train: Split
    test: Split | None
    benchmark: Benchmark | None = None
    method: str = "original"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    after_phase: AfterPhase = not_kept  # the model as it was after a phase, where the run's folder keeps that
    original: Callable[[], nn.Module] | None = None  # the model before unlearning, where the data's source has it

    @property
    def certificate(self) -> Certificate | None:
        """What the bound on forget accuracy is computed from, if its method has one."""
        return certificate_of({"method": self.method, "settings": self.settings}, self.after_phase)

    def same_architecture(self) -> nn.Module:
        """Return a model to load other weights into."""
        if self.benchmark is None:
            raise UsageError(
                "Other models can be loaded only for a benchmark or a request. Use unweave.evaluate in Python."
            )
        return self.benchmark.initial(0)


def load_subject(
    path: Path | None,
    *,
    benchmark: str | None = None,
    split: Path | None = None,
    test_split: Path | None = None,
    data: str | None = None,
    options: Mapping[str, Any] | None = None,
    source: str | None = None,
    method: str | None = None,
) -> Subject:
    """Open a safetensors file or the folder of a run, with the data of a benchmark. A run folder names its benchmark.

    ``options`` are the benchmark's; by default they come from the run folder. ``split`` is a file of indices that
    replaces the benchmark's training split. ``test_split`` is the same for the test data; with ``split`` alone there is
    no test data. ``source`` names a function of the user's, ``module:function``, that returns (model, training split,
    test split or None). Then there is no benchmark, ``path`` may give weights for that model, and ``split`` and
    ``test_split`` refer to its samples. ``method`` says how a model in a file was unlearned.
    """
    if path is not None and not path.exists():
        raise UsageError(f"{path} does not exist. Give a safetensors file, or the folder of a run.")
    config = _config(path)
    if source is not None:
        if benchmark is not None:
            raise UsageError(f"--from {source} and --benchmark {benchmark} both name the data. Give one of them.")
        return _of_function(source, path, config, split=split, test_split=test_split, method=method)
    if path is None:
        raise UsageError(
            "Say which model to examine: a safetensors file, the folder of a run, or yours with --from MODULE:FUNCTION."
        )
    name = benchmark or _named_by(path, config)
    if name is None:
        raise UsageError(
            "Say which data the model belongs to: --benchmark NAME or REQUEST.yaml, or --from MODULE:FUNCTION."
        )
    asked = options or {}
    if not options and config.get("benchmark") == name:
        options = _harmless(config.get("options") or {}, data, path)
    chosen = find_benchmark(name, data=data, options=options)
    train, test = load_splits(chosen, path, split=split, test_split=test_split, asked=asked)
    if split is None:
        _check_split(path, config, train, f"{name}'s own")
    return _of_benchmark(chosen, path, config, train, test, method=method)


def _named_by(path: Path, config: Mapping[str, Any]) -> str | None:
    """Return the benchmark that a run's folder names: in its configuration, or by the request beside it."""
    if not (path / RESOLVED).is_file():
        return config.get("benchmark")
    model = Request.load(path / RESOLVED).model or ""
    if has_name_of_function(model):
        raise UsageError(
            f"The request in {path} names code ({model}), and the folder may come from a stranger. If you trust it, "
            f"give it yourself: --benchmark {path / RESOLVED}"
        )
    return str(path)


def _of_function(
    source: str,
    path: Path | None,
    config: Mapping[str, Any],
    *,
    split: Path | None,
    test_split: Path | None,
    method: str | None,
) -> Subject:
    """Return the subject whose model and data come from a function of the user's."""
    model, train, test = call_task(source)
    train, test = _other_splits(source, train, test, split=split, test_split=test_split)
    if split is None:
        _check_split(path, config, train, f"{source} returns")
    said = config.get("method", "original")
    by = find_method(method or (said if said in all_methods() else "original"))  # it may be the user's own
    settings = by.configure(config.get("settings", {}) if said == by.name else {}).to_dict()
    return Subject(
        model=load_weights(model, path) if path else model,
        train=train,
        test=test,
        method=by.name,
        settings=settings,
        seed=config.get("seed", 0),
        after_phase=_kept(path, copy.deepcopy(model)) if path and config else not_kept,
    )


def _of_benchmark(
    benchmark: Benchmark, path: Path, config: Mapping[str, Any], train: Split, test: Split | None, *, method: str | None
) -> Subject:
    """Return the subject whose model is the benchmark's."""
    by = find_method(method or config.get("method", "original"))
    known = config.get("method") == by.name
    # Parsed, so that only settings of the method can come from a stranger's folder.
    settings = by.configure(config.get("settings", {}) if known else benchmark.settings_for(by, None)).to_dict()
    return Subject(
        model=load_weights(benchmark.initial(0), path).eval(),
        train=train,
        test=test,
        benchmark=benchmark,
        method=by.name,
        settings=settings,
        seed=config.get("seed", 0),
        after_phase=_kept(path, benchmark.model()) if config else not_kept,
        original=benchmark.original if isinstance(benchmark, OwnTask) else None,
    )


def _check_split(path: Path | None, config: Mapping[str, Any], train: Split, whose: str) -> None:
    """Raise an error for another split than the one in a run's configuration."""
    if "split" in config and config["split"] != train.hash:
        raise UsageError(f"{path} was made with another split than {whose}. Give it with --split.")


def _kept(folder: Path, model: nn.Module) -> AfterPhase:
    return lambda phase: model_after(folder, model, phase)


def load_splits(
    benchmark: Benchmark,
    folder: Path,
    *,
    split: Path | None = None,
    test_split: Path | None = None,
    asked: Mapping[str, Any] | None = None,
) -> tuple[Split, Split | None]:
    """Return the training and the test split: from the files, else from the run's folder, else from the benchmark.

    A test split belongs to one training split; without the one that belongs to it, there is none. ``asked`` are the
    options that the user gave. One that selects another forget set than the folder's raises an error.
    """
    task, own_test = benchmark.load(), folder / TEST_SPLIT
    own = Split.load(folder / SPLIT, task.train.samples) if (folder / SPLIT).exists() else None
    if own is not None and split is None and own != task.train:
        _check_asked(asked or {}, benchmark, folder)
    train = Split.load(split, task.train.samples) if split else own or task.train
    if test_split is None and own_test.exists() and train == own:
        test_split = own_test
    if test_split is not None:
        if task.test is None:
            raise UsageError(f"{test_split} splits test data, but {benchmark.name} has none.")
        return train, Split.load(test_split, task.test.samples)
    return train, task.test if train is task.train else None


def _check_asked(asked: Mapping[str, Any], benchmark: Benchmark, folder: Path) -> None:
    """Raise an error for an option that selects what to forget: the folder has another forget set."""
    for name, value in asked.items():
        if name in benchmark.only_split:
            raise UsageError(
                f"{folder} has its own forget set ({SPLIT}), which differs from that of --option {name}={value}. "
                f"Leave the option out, or examine {find_weights(folder)} with it."
            )


def _other_splits(
    source: str, train: Split, test: Split | None, *, split: Path | None, test_split: Path | None
) -> tuple[Split, Split | None]:
    """Return the splits of the user's function, or those of the files over the same samples."""
    if test_split is not None and test is None:
        raise UsageError(f"--test-split needs test data, but {source} returns no test split.")
    other_test = Split.load(test_split, test.samples) if test_split is not None and test is not None else None
    if split is not None:
        return Split.load(split, train.samples), other_test  # a test split belongs to one training split
    return train, other_test or test


def _config(path: Path | None) -> dict[str, Any]:
    """Return the configuration of a run folder; empty for a plain file."""
    if path is None or not path.is_dir():
        return {}
    try:
        content = read_configuration(path)
        require_form(content, CONFIG, configuration_file(path).name)
    except UsageError as error:
        raise UsageError(f"{path} is not the folder of a run: {error}") from error
    return {name: value for name, value in content.items() if value is not None}


def _harmless(options: Mapping[str, Any], data: str | None, path: Path) -> Mapping[str, Any]:
    """Return the options from a run's folder; raise an error for one that names code, a place elsewhere or the Hub.

    The folder may come from a stranger. The user can pass such an option on the command line.
    """
    for name, value in options.items():
        if not isinstance(value, str):
            continue
        here = [Path(value), *([Path(data) / value] if data else [])]
        is_there = any((folder / "config.json").exists() for folder in here)
        leads_out = Path(value).is_absolute() or ".." in Path(value).parts
        if ":" in value or leads_out or ("/" in value and not is_there):
            raise UsageError(
                f"{configuration_file(path)} has the option {name}={value!r}, which names code, a place outside the "
                f"data folder or the Hub. If you trust it, give it yourself: --option {name}={value}"
            )
    return options
