"""`unlearn`: run a method on a copy of a model, and write what came out of it."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.api.arguments import (
    check_folder_asked,
    copied,
    require_arguments,
    require_model,
    require_task,
)
from unweave.api.moved import refuse_moved
from unweave.api.result import Result
from unweave.api.split import Split
from unweave.api.verdict import positive_epochs
from unweave.data import EVERY, RETAINED, SUBSETS, Partition
from unweave.engine import (
    Callback,
    Checkpoints,
    Compute,
    Guard,
    History,
    Limits,
    Progress,
    ProgressLine,
    Running,
    ScoreOn,
    Workbench,
    advice_on,
    of_kind,
    require_callbacks,
    run_phases,
)
from unweave.errors import UsageError, require_seed
from unweave.evaluation import Scores, accuracy_and_losses, evaluate, predict
from unweave.methods import Method, find_method, make_method
from unweave.record import certificate_of, published_rows
from unweave.runs import OutputFolder, SaveWith, label_names, left_in_order, model_card, run_page
from unweave.runtime import limited_to
from unweave.storage import HISTORY, PAGE, SCORES, VERDICT, fingerprint, provenance
from unweave.tasks import Task, describe_task, scoring_task

LIMITS = Limits()
FEW = 64  # samples, to see that the model takes them
log = logging.getLogger("unweave")


def unlearn(
    model: nn.Module,
    split: Split,
    method: str | Method | type[Method] = "adaptive",
    *,
    test: Split | None = None,
    task: Task | str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    compute: Compute | None = None,
    guard: Limits | Mapping[str, Any] | None = LIMITS,
    callbacks: Sequence[Callback] = (),
    profile: str | None = None,
    **settings: Any,
) -> Result:
    """Make a copy of the model forget the split's forget set. The model given is never changed.

    Args:
        model: The trained model.
        split: What to forget, what is entangled with it, what else is kept. Later requests: ``split.after(*earlier)``.
        method: A method with its settings, such as ``uw.TwoStage(alpha=0.5)``, or the name of one. The default,
            `Adaptive`, finds its steps and its length itself.
        test: Test data, split alike. It is only measured.
        task: What a sample is to the model: a task, or the name of one. None: found from outputs and labels.
        seed: Seed of everything random.
        out: A folder for configuration, history, weights and scores. It appears whole at the end.
        resume: Resume the unfinished run of that folder. The result is that of a run that was never stopped.
        compute: Device, precision, memory, and how several processes share the model.
        guard: Limits at which a run that destroys the model is stopped. None: no guard.
        callbacks: What goes along with the run: `Watch`, `Track`, `Checkpoints`, `Best`, or your own.
        profile: A named set of values of a method given by name (``unweave methods NAME``). None: its first; for
            two-stage ``default``, which finds its steps and length.
        settings: Settings of a method given by name, on top of its profile.

    Returns:
        The unlearned model with history, cost, scores and verdict.

    Raises:
        UsageError: An argument cannot be used. The message says what to do.
        RunError: The work failed; as `CollapseError` the guard stopped it, as `Stopped` a callback did.

    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> result = unlearn(nn.Linear(4, 2), Split(data, forget=[0, 1], adjacent=[2, 3]), "ga", learning_rate=0.1)
    >>> result.cost.sample_gradients
    10
    """
    if profile is None and not isinstance(method, Method):
        profile = find_method(method).on_own_models or None
    chosen = _chosen(method, settings, profile)
    require_arguments(model, split, test, guard, compute, resume=resume, out=out)
    chosen.check(split)
    given = _Given(
        chosen, require_seed(seed), compute or Compute(), _limits(guard), require_callbacks(callbacks), out, resume
    )
    require_model(model, kept=out is not None or given.limits is not None)
    require_task(chosen, task)
    where = check_folder_asked(given.compute.check(), out=out, resume=resume)
    named = chosen.nearest_profile() if isinstance(method, Method) else next(iter(chosen.profiles))
    return _Run(given, _workbench(model, split, given, where, task), model, test, profile or named).go()


@dataclass(frozen=True)
class _Given:
    """What a run was asked for, checked."""

    chosen: Method
    seed: int
    compute: Compute
    limits: Limits | None
    callbacks: list[Callback]
    out: str | os.PathLike[str] | None
    resume: bool

    def only(self, kind: type[Any]) -> Any:
        """Return the callback of a kind, or one with its defaults."""
        return of_kind(self.callbacks, kind)


class _Run:
    """One run, from the first step to the written folder."""

    def __init__(self, given: _Given, bench: Workbench, model: nn.Module, test: Partition | None, profile: str) -> None:
        self.given, self.bench, self.model, self.test = given, bench, model, test
        if given.chosen.needs_tokens and not bench.task.has_tokens:
            raise UsageError(
                f"{given.chosen.name} works on the tokens of answers, and the task {bench.task.name} has none. Take a "
                "method that needs losses only, such as two-stage or unweave."
            )
        if not given.chosen.takes_loss and not bench.task.has_choices:
            raise UsageError(
                f"{given.chosen.name} works on classes, and the task {bench.task.name} has no classes. Take a method "
                "that needs losses only, such as two-stage or unweave."
            )
        compute = replace(given.compute, device=bench.device, precision=bench.precision)
        self.scoring = _Scoring(bench, model, given.only(ScoreOn), test, compute)
        self.config = self._configuration(profile)

    def go(self) -> Result:
        """Run every phase, measure, write."""
        given, bench = self.given, self.bench
        folder = self._open() if given.out is not None else None
        begun = folder.begun if folder else datetime.now(UTC).isoformat(timespec="seconds")
        log.info("%s on %s, %s", given.chosen.name, bench.split, bench.device)
        phases = list(given.chosen.phases())
        target = folder.target if folder else None
        with left_in_order(folder), limited_to(bench.max_memory, bench.device):
            watcher = Guard(bench, given.limits, forget="forget" in given.chosen.needs) if given.limits else None
            history = run_phases(
                bench,
                phases,
                checkpoints=folder.checkpoints if folder else None,
                resume=given.resume,
                progress=ProgressLine(show=given.only(Progress).show, title=given.chosen.name),
                guard=watcher,
                callbacks=given.callbacks,
                running=Running(bench, self.scoring.split, self.test, target, self.config),
            )
            for module, original in zip(bench.model.modules(), self.model.modules(), strict=True):
                module.training = original.training
            checks = tuple(watcher.checks) if watcher else ()
            warned = frozenset(watcher.warned) if watcher else None
            if folder is None:
                return self._result(history, begun, checks, warned=warned)
            scores = self._scores(folder)
            stages = self.scoring.stages(folder, [phase.name for phase in phases])
            result = self._result(history, begun, checks, warned=warned, measured=scores, folder=target)
            texts, about = _files(result, stages), _about(result, bench.device)
            for callback in given.callbacks:
                texts |= callback.files(result)
            beside = given.only(SaveWith)
            folder.finish(result.model, texts, about=about, card=_card(result), beside=beside)
        return result

    def _open(self) -> OutputFolder:
        self.scoring.try_on()  # to fail now, not when all the work is done
        self.given.only(SaveWith).check_model(self.model)
        how_often = self.given.only(Checkpoints)
        return OutputFolder(
            Path(self.given.out or ""),
            self.config,
            resume=self.given.resume,
            checkpoint_seconds=how_often.seconds,
            checkpoint_steps=how_often.steps,
        )

    def _scores(self, folder: OutputFolder) -> Scores:
        """Measure the model. Should anything go wrong from here on, its weights are kept."""
        folder.worked_out = None if self.bench.sharded else self.bench.model
        return self.scoring.scores(certificate=certificate_of(self.config, method=self.given.chosen))

    def _result(self, history: History, begun: str, checks: tuple[Mapping[str, Any], ...], **more: Any) -> Result:
        return Result(
            model=self.bench.release().to(next(self.model.parameters()).device),
            history=history,
            cost=self.bench.cost,
            settings=self.given.chosen,
            config=self.config,
            original=self.model,
            split=self.bench.split,
            test=self.test,
            task=self.scoring.task if self.given.chosen.needs or self.given.out is not None else None,
            begun=begun,
            checks=checks,
            compute=self.given.compute,
            **more,
        )

    def _configuration(self, profile: str) -> dict[str, Any]:
        """Return the recorded configuration: everything that the result depends on."""
        given, bench, scoring = self.given, self.bench, self.scoring
        config = {
            "method": given.chosen.name,
            "profile": profile,
            "settings": given.chosen.to_dict(),
            "seed": given.seed,
            "precision": bench.precision,
            "compile": given.compute.compile,
            "split": bench.split.hash,
            **(describe_task(bench.task) if given.chosen.needs else {}),
            **({"model": fingerprint(self.model.state_dict())} if given.out is not None else {}),
            "limits": given.limits.to_dict() if given.limits else None,
            **given.chosen.on_record(),
            **({"judged_on": scoring.split.hash} if scoring.is_other else {}),
        }
        for callback in given.callbacks:
            config |= callback.describe()
        if "trained_epochs" in config:
            positive_epochs(config["trained_epochs"])
        return config


def _chosen(method: str | Method | type[Method], settings: Mapping[str, Any], profile: str | None) -> Method:
    """Return the method with its settings; say where arguments of former versions went."""
    found = make_method(method, {}) if not isinstance(method, Method) else method
    refuse_moved(settings, [row["name"] for row in found.describe()] + list(found.given_names()))
    return make_method(method, settings, profile=profile)


def _limits(guard: Limits | Mapping[str, Any] | None) -> Limits | None:
    return Limits.parse(guard) if isinstance(guard, Mapping) else guard


def _workbench(
    model: nn.Module, split: Partition, given: _Given, where: torch.device, task: Task | str | None
) -> Workbench:
    """Return a workbench with a copy of the model. Only samples that the method reads are looked at."""
    compute = given.compute
    needed = {name for some in given.chosen.needs or RETAINED for name in ((some,) if isinstance(some, str) else some)}
    return Workbench(
        model if compute.cuts_weights else copied(model).to(where),
        split,
        device=where,
        task=task,
        reads=[name for name in split.names if name in needed and len(split[name])],
        seed=given.seed,
        precision=compute.precision,
        compile=compute.compile,
        micro_batch=compute.micro_batch,
        max_memory=compute.max_memory,
        keep_data=compute.keep_data,
        shard=compute.cuts_weights,
    )


class _Scoring:
    """Measures the model of a workbench, beside the original, on the data that scores are asked for."""

    def __init__(
        self, bench: Workbench, original: nn.Module, on: ScoreOn, test: Partition | None, compute: Compute
    ) -> None:
        self.bench, self.original, self.test, self.look, self.compute = bench, original, test, on.look, compute
        split, self.split = bench.split, on.split or bench.split
        self.is_other = on.split is not None and (on.split != split or on.split.samples is not split.samples)

    @cached_property
    def task(self) -> Task:
        """The task that scores are measured by."""
        bench = self.bench
        return scoring_task(
            bench.task, bench.model, bench.split.samples, bench.split.rows(*bench.split.names), bench.device
        )

    @property
    def how(self) -> dict[str, Any]:
        """How models are looked at."""
        return {**self.compute.looking, "task": self.task}

    def try_on(self) -> None:
        """Raise a `UsageError` where the model cannot take the data."""
        for some in filter(None, (self.split, self.test)):
            self.task.require_samples(self.original, some.samples, some.rows(*SUBSETS))
            predict(self.bench.like(self.original), some.samples, some.rows(*SUBSETS)[:FEW], **self.how)

    def scores(self, **certificate: Any) -> Scores:
        """Return the scores of the model as it is now."""
        original = self.bench.like(self.original)
        how: dict[str, Any] = {"look": self.look, "task": self.task, "compute": self.compute}
        return evaluate(self.bench.model, self.split, self.test, original=original, **certificate, **how)

    def stages(self, folder: OutputFolder, names: Sequence[str]) -> dict[str, Any]:
        """Return accuracy and losses of the forget samples after each phase but the last, from the weights kept."""
        found = {}
        for number, weights in folder.checkpoints.between():
            between = copy.deepcopy(self.original)
            between.load_state_dict(weights)
            rows = self.split.rows("forget")
            predictions = predict(self.bench.like(between), self.split.samples, rows, **self.how)
            found[names[number]] = accuracy_and_losses(predictions)
        return found


def _files(result: Result, stages: Mapping[str, Any]) -> dict[str, str]:
    """Return the text files of a run's folder."""
    scores = (result.measured.to_dict() if result.measured else {}) | ({"stages": stages} if stages else {})
    return {
        HISTORY: result.history.to_jsonl(),
        SCORES: json.dumps({**scores, "cost": result.cost.to_dict()}, indent=2) + "\n",
        VERDICT: f"{result.verdict}\n",
        PAGE: report_page(result),
    }


def report_page(result: Result, *more: str) -> str:
    """Return the page of a run, with further sections."""
    counts = {subset: len(result.split[subset]) for subset in EVERY}
    names = label_names(result.original)
    found = result.verdict
    outcome: dict[str, Any] = {"reached": found.reached, "kept": found.kept}
    if found.goal == "erase":
        outcome["mend"] = advice_on(result.settings)
    return run_page(result.config, result.scores, str(found), counts, **outcome, names=names, more=more)


def _card(result: Result) -> str:
    """Return the model card of a run."""
    counts = {subset: len(result.split[subset]) for subset in EVERY}
    library = "peft" if hasattr(result.model, "peft_config") else "transformers"
    rows = list(published_rows(result.scores))  # the card goes to others, and shows what a record would
    return model_card(result.config, result.scores, result.verdict.in_short, counts, rows=rows, library=library)


def _about(result: Result, device: torch.device) -> dict[str, Any]:
    """Return what is known about a run once it is finished."""
    origin = provenance(device)
    return {
        "finished": origin["date"],
        "software": {"commit": origin["commit"], **origin["versions"]},
        "hardware": origin["hardware"],
        "cost": result.cost.to_dict(),
    }
