"""The guard checks a fixed sample during a run, and stops the run before it destroys the model.

It compares accuracy and mean loss on kept data with their values before the run. Each phase names the data that it
must preserve throughout (`Phase.guards`) and at its end (`Phase.guards_at_end`). For example, stage 1 of the two-stage
method gives up the adjacent data on purpose, and stage 2 wins it back. A phase that repairs what it harms on its way is
judged at its end only.

Losses of accuracy are measured against what the model knew above chance, so that a weak model is protected like a
strong one.

A check changes nothing: it draws no random numbers, restores the model's mode, and is not counted in the cost. Checks
come after a fixed amount of work, not time, so that the same run is always checked at the same steps.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unweave.data import RETAINED
from unweave.engine.phase import Phase
from unweave.engine.workbench import Workbench
from unweave.errors import RunError, RunWarning
from unweave.runtime import collected
from unweave.settings import Settings, setting

BATCH = 64
START = "before the first step"
FEWEST = 10  # samples that a kept subset needs to be checked
LITTLE = 0.02  # accuracy above chance below which a model knows nothing that it could lose


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """How far kept data may degrade before a run is stopped, measured on a fixed sample against the initial model.

    Args:
        adjacent_accuracy_drop: Share of its accuracy above chance that adjacent data may lose, from 0 to 1.
        remote_accuracy_drop: Share of its accuracy above chance that remote data may lose, from 0 to 1.
        adjacent_loss_rise: Mean loss that adjacent data may gain. 0: no limit.
        remote_loss_rise: Mean loss that remote data may gain. 0: no limit.
        forget_loss_rise: Warn at the end if the mean forget loss rose by less, and more than half of what was
            recognised still is. 0: never.
        accuracy_drop_warning: Warn at the end if kept data lost more of its accuracy above chance. 1: never.
        samples: Samples of each subset to check, always the same.
        share: Largest share of a run's work for checks between its start and its end.

    Raises:
        UsageError: A value is out of range.

    >>> Limits(remote_accuracy_drop=0.05).samples
    128
    """

    adjacent_accuracy_drop: float = setting(
        0.8, at_least=0, at_most=1, help="Share of its accuracy above chance that adjacent data may lose; 1: any."
    )
    remote_accuracy_drop: float = setting(
        0.5, at_least=0, at_most=1, help="Share of its accuracy above chance that remote data may lose; 1: any."
    )
    adjacent_loss_rise: float = setting(10.0, at_least=0, help="Mean loss that adjacent data may gain; 0: no limit.")
    remote_loss_rise: float = setting(5.0, at_least=0, help="Mean loss that remote data may gain; 0: no limit.")
    forget_loss_rise: float = setting(0.5, at_least=0, help="Warn if the mean forget loss rises by less; 0: never.")
    accuracy_drop_warning: float = setting(
        0.1, at_least=0, at_most=1, help="Warn if kept data lost more of its accuracy above chance; 1: never."
    )
    samples: int = setting(128, at_least=1, help="Samples of each subset to check, always the same.")
    share: float = setting(
        0.005, above=0, at_most=1, help="Largest share of a run's work for checks between its start and its end."
    )


@dataclass(frozen=True)
class Good:
    """The weights at the last passed check, on the CPU, and the place of that check in the run.

    Before the first check they are those of the model that was given. If weights are sharded, only the first process
    has them.
    """

    weights: Mapping[str, Tensor]
    place: str

    @property
    def is_original(self) -> bool:
        """Whether these are the weights of the model that was given, which still knows the forget data."""
        return self.place == START


class CollapseError(RunError):
    """A run was stopped because it was destroying the model.

    Attributes:
        limit: The name of the broken limit.
        values: The measured values.
        good: The last good weights. None if there are none.

    >>> CollapseError("Adjacent accuracy fell by 0.9.", limit="adjacent_accuracy_drop").limit
    'adjacent_accuracy_drop'
    """

    def __init__(self, words: str, *, limit: str = "", values: Mapping[str, Any] | None = None) -> None:
        super().__init__(words)
        self.limit, self.values = limit, dict(values or {})
        self.good: Good | None = None


class Guard:
    """Checks one run. Create it before the first step or before restoring a checkpoint: it measures the initial model.

    ``forget=False`` skips the forget data, for methods that do not read it.
    """

    def __init__(self, bench: Workbench, limits: Limits, *, forget: bool = True) -> None:
        self.bench, self.limits = bench, limits
        self.rows = {
            subset: _some(torch.from_numpy(bench.split[subset]), limits.samples)
            for subset in (*(["forget"] if forget else []), *RETAINED)
            if len(bench.split[subset]) >= (1 if subset == "forget" else FEWEST)
        }
        for rows in self.rows.values():
            bench.task.require_samples(bench.model, bench.split.samples, rows)
        self.chance = 0.0
        self.start = self._look(tuple(self.rows))
        self.good: Good = self._weights(START)
        self.checks: list[dict[str, Any]] = []
        self.warned: set[str] = set()  # subsets that a warning was about
        self._work_at_last_check = 0
        self._forgotten: bool | None = None  # whether the forget data was forgotten at the end of the previous phase

    # When to check

    def due(self, phase: Phase) -> bool:
        """Return whether the run has done enough work since the last check to afford another."""
        looked_at = sum(len(self.rows[subset]) for subset in phase.guards if subset in self.rows)
        return looked_at > 0 and (self._work() - self._work_at_last_check) * self.limits.share >= looked_at

    def _work(self) -> int:
        """Return the work done so far in forward passes of one sample; a gradient counts as two more."""
        return self.bench.cost.sample_forwards + 2 * self.bench.cost.sample_gradients

    # Checks

    def check(self, phase: Phase, step: int) -> None:
        """Check after a step, and stop the run if a limit is broken."""
        self._check(phase, phase.guards, f"in step {step} of {phase.name}", step=step)

    def check_end(self, phase: Phase) -> None:
        """Check after the last step of a phase; also warn if little was forgotten or kept data was lost."""
        found = self._check(phase, phase.guards_at_end, f"in the last step of {phase.name}", step=phase.steps - 1)
        self._warn_if_lost(phase, found)
        if "forget" not in found:
            return
        before, now = self.start["forget"]["loss"], found["forget"]["loss"]
        still = "accuracy" not in found["forget"] or (
            2 * found["forget"]["accuracy"] > self.start["forget"]["accuracy"] or not self.start["forget"]["accuracy"]
        )
        hardly = bool(self.limits.forget_loss_rise) and now - before < self.limits.forget_loss_rise and still
        if hardly and self._forgotten is not False:  # False: an earlier phase has warned
            came_back = self._forgotten is True
            words = "the forgotten data came back" if came_back else "the data is hardly forgotten"
            self.warned.add("forget")
            warnings.warn(
                f"{phase.name} ended with a mean forget loss of {now:.2f} ({before:.2f} before the run): {words}. "
                f"{_advice(phase)}",
                RunWarning,
                stacklevel=2,
            )
        self._forgotten = not hardly

    def _warn_if_lost(self, phase: Phase, found: Mapping[str, Mapping[str, float]]) -> None:
        """Warn if kept data is much worse than before the run."""
        for subset in RETAINED:
            if "accuracy" not in found.get(subset, {}):
                continue
            before, now = self.start[subset]["accuracy"], found[subset]["accuracy"]
            if self._lost(subset, found[subset]) > self.limits.accuracy_drop_warning < 1:
                self.warned.add(subset)
                warnings.warn(
                    f"{phase.name} ended with {subset} accuracy {now:.1%} ({before:.1%} before the run): kept data was "
                    f"lost. {_advice(phase)}",
                    RunWarning,
                    stacklevel=3,
                )

    def _check(self, phase: Phase, subsets: tuple[str, ...], place: str, *, step: int) -> dict[str, dict[str, float]]:
        found = self._look(tuple(subset for subset in subsets if subset in self.rows))
        self._work_at_last_check = self._work()
        self.checks.append({"phase": phase.name, "step": step, **found})
        for subset in RETAINED:
            if subset in found:
                self._require(subset, found[subset], place, phase)
        self.good = self._weights(place)
        return found

    def _weights(self, place: str) -> Good:
        state = collected(self.bench.model.state_dict())
        return Good({name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}, place)

    def _require(self, subset: str, now: Mapping[str, float], place: str, phase: Phase) -> None:
        before = self.start[subset]
        values = {"before": before, "now": dict(now)}

        def stop(limit: str, words: str, *, allows: bool = True) -> CollapseError:
            more = f" To allow more, change {limit} in the limits." if allows else ""
            said = f"The run was stopped {place}: {words}. {_advice(phase)}{more}"
            return CollapseError(said, limit=limit, values=values)

        if not math.isfinite(now["loss"]):  # no limit allows that
            raise stop(f"{subset}_loss_rise", f"the {subset} loss is {now['loss']}", allows=False)
        drop, rise = (getattr(self.limits, f"{subset}_{kind}") for kind in ("accuracy_drop", "loss_rise"))
        if drop < 1 and self._lost(subset, now) > drop:
            words = f"{subset} accuracy fell from {before['accuracy']:.1%} to {now['accuracy']:.1%}"
            above = f"{100 * drop:g}% of what it was above chance ({self.chance:.1%})"
            raise stop(f"{subset}_accuracy_drop", f"{words}, but may lose at most {above}")
        if rise and now["loss"] - before["loss"] > rise:
            words = f"the {subset} loss rose from {before['loss']:.3g} to {now['loss']:.3g}"
            raise stop(f"{subset}_loss_rise", f"{words}, but may rise by {rise:g} at most")

    def _lost(self, subset: str, now: Mapping[str, float]) -> float:
        """Return the share of its accuracy above chance that a subset lost; 0 where that may be chance itself."""
        if "accuracy" not in now:
            return 0.0
        lost = self.start[subset]["accuracy"] - now["accuracy"]
        knew = self.start[subset]["accuracy"] - self.chance
        noise = 1 / math.sqrt(len(self.rows[subset]))  # two standard errors of a share, at most
        return lost / knew if knew > LITTLE and lost > noise else 0.0

    def _look(self, subsets: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """Return the mean loss on the fixed sample and, if the task defines it, the share that is recognised."""
        bench, found = self.bench, {}
        for subset in subsets:
            task, rows = bench.task, self.rows[subset]
            outputs, labels = bench.forward.rows(
                task.tried_outputs, bench.model, bench.split.samples, rows, batch_size=BATCH, labels=task.label_rows
            )
            task.require_labels(labels, rows, outputs)
            labels = task.labels(labels)
            self.chance = task.chance(outputs)
            found[subset] = {"loss": float(task.losses(outputs, labels).double().mean())}
            if (recognised := task.recognised(outputs, labels)) is not None:
                found[subset]["accuracy"] = float(recognised.double().mean())
        return found

    # Checkpoints

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs to check at the same steps."""
        return {"work": self._work_at_last_check, "checks": self.checks, "forgotten": self._forgotten}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._work_at_last_check, self.checks = int(state["work"]), list(state["checks"])
        self._forgotten = state.get("forgotten")


def _some(rows: Tensor, count: int) -> Tensor:
    """Return at most ``count`` rows, evenly spread."""
    if len(rows) <= count:
        return rows
    return rows[torch.arange(count) * len(rows) // count]


def _advice(phase: Phase) -> str:
    return advice_on(getattr(phase, "settings", None))


def advice_on(settings: Any) -> str:
    """Return what to do about a run with these settings that went wrong. Tests follow it."""
    if isinstance(settings, Settings) and "effort" in settings.to_dict():
        return "Raise effort. If that does not help, kept data is too much like it: see split.inspect(model)."
    if getattr(settings, "goal_of_run", "") == "retrain":  # adaptive erases
        return "Use more epochs or another learning rate."
    return "Use the method adaptive, which finds its own steps and length."
