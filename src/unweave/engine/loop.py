"""The loop that runs the phases of every method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unweave.engine.batches import derive_seed
from unweave.engine.callbacks import Callback, Running
from unweave.engine.checkpoints import Checkpoint, CheckpointFolder
from unweave.engine.cost import Cost
from unweave.engine.guard import CollapseError, Guard
from unweave.engine.history import History
from unweave.engine.phase import Phase
from unweave.engine.progress_line import ProgressLine
from unweave.engine.workbench import Workbench
from unweave.errors import RunError, Stopped, UsageError
from unweave.runtime import exchange, own_random_numbers, processes, seed_everything, sharding

OVERFLOW = "without overflow"  # in torch's message


def run_phases(
    bench: Workbench,
    phases: Sequence[Phase],
    *,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
    progress: ProgressLine | None = None,
    guard: Guard | None = None,
    callbacks: Sequence[Callback] = (),
    running: Running | None = None,
) -> History:
    """Run the phases in order on the workbench's model and return what they logged.

    The random numbers of a step depend on the seed, the phase and the step only, so a run that resumes from
    a checkpoint continues exactly as if it had never stopped. The caller's random generators do not change. Several
    processes take every step together; the first decides when to check, save and stop.

    The values that ``callbacks`` return after a step are logged with it. If a callback wants to stop, the run writes a
    checkpoint, if ``checkpoints`` is given, and raises `Stopped`. A ``guard`` stops a run that destroys the model with
    a `CollapseError` that holds the last good weights. ``running`` describes the run to the callbacks.
    """
    running = running or Running(bench, bench.split)
    run = _Run(bench, phases, checkpoints, progress or ProgressLine(show=False), guard, list(callbacks), running)
    done = checkpoints.newest() if checkpoints and resume else None
    with _going_along(callbacks, running):
        try:
            with processes.heard():
                run.go(done)
        except Stopped:
            raise
        except RunError as error:
            if guard is None:
                raise
            stopped = error if isinstance(error, CollapseError) else CollapseError(str(error))
            stopped.good = guard.good
            raise stopped from error
        for callback in callbacks:
            callback.finish(running)
    bench.mode("eval")
    return run.history


@contextmanager
def _going_along(callbacks: Sequence[Callback], running: Running) -> Iterator[None]:
    """Begin the callbacks, and end them however the run ends."""
    with ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.end)
            callback.begin(running)
        yield


@contextmanager
def _overflow_explained(when: str) -> Iterator[None]:
    """Raise a `RunError` where a number becomes too large for Python or for the weights' type.

    The range of a setting cannot prevent that: optimisers multiply step sizes by factors of their own.
    """
    try:
        yield
    except (OverflowError, RuntimeError) as error:
        # torch raises a bare RuntimeError for a step size that single precision cannot hold.
        if not isinstance(error, OverflowError) and OVERFLOW not in str(error):
            raise
        raise RunError(
            f"A number became too large {when}. Nothing was changed. Use smaller settings: first the learning rate, "
            "then the weight decay and other factors."
        ) from error


@dataclass
class _Run:
    """One run of phases."""

    bench: Workbench
    phases: Sequence[Phase]
    checkpoints: CheckpointFolder | None
    line: ProgressLine
    guard: Guard | None
    callbacks: list[Callback]
    running: Running
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(tell=self._tell)

    def _tell(self, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        for callback in self.callbacks:
            callback.rows(first, rows)

    def go(self, done: Checkpoint | None) -> None:
        """Run all phases, or those that remain after a checkpoint."""
        if done:
            self._restore(done)
        with own_random_numbers(self.bench.device), self.bench.working(), self.line:
            self.bench.forward.compiling.expect(self._ahead(0))
            for index, phase in enumerate(self.phases):
                if done and index < done.phase:
                    continue
                if done and index == done.phase:
                    self._steps(index, first=done.step)
                else:
                    self._begin(index)
                    self._steps(index, first=0)
                phase.finish()
                phase.release()
                _ = self.history.rows  # raises if a value is not finite
                self._require_finite(f"in the last step of {phase.name}")
                if self.guard and phase.steps:
                    self.guard.check_end(phase)

    def _begin(self, index: int) -> None:
        phase = self.phases[index]
        seed_everything(derive_seed(self.bench.seed, phase.name, "begin") % 2**32, self.bench.device)
        with _overflow_explained(f"before the first step of {phase.name}"):
            phase.prepare(self.bench)
            phase.begin()
        if self.checkpoints and index > 0:
            self.checkpoints.save(self._checkpoint(index, 0))

    def _steps(self, index: int, *, first: int) -> None:
        bench, phase = self.bench, self.phases[index]
        self.line.phase(phase.name, steps=phase.steps, done=first)
        # A user's own phase may differentiate losses in ways that recorded passes do not have (torch.autograd.grad).
        ours = type(phase).__module__.startswith("unweave.")
        ahead = self._ahead(index)
        own = [processes.rank()] if processes.rank() else []  # each process draws its own dropout
        for number in range(first, phase.steps):
            if phase.is_over():
                break
            seed_everything(derive_seed(bench.seed, phase.name, number, *own) % 2**32, bench.device)
            bench.forward.compiling.step(number, of=phase.steps, first=first, may_record=ours, ahead=ahead)
            with _overflow_explained(f"in step {number} of {phase.name}"):
                logged = phase.step(number)
            for callback in self.callbacks:
                logged = {**logged, **callback.step(phase, number)}
            self.history.add(phase.name, number, logged)
            if self.line.due():
                self.line.show(number + 1, self.history.rows[-1])
            self._between_steps(index, number)

    def _ahead(self, index: int) -> Counter[int]:
        """Return how many passes with gradient later phases will take, by their number of samples."""
        found: Counter[int] = Counter()
        for phase in self.phases[index + 1 :]:
            found.update(phase.passes(self.bench))
        return found

    def _between_steps(self, index: int, number: int) -> None:
        """Check, save and stop, if each is due."""
        phase = self.phases[index]
        look = self.guard is not None and number + 1 < phase.steps and self.guard.due(phase)
        leave = any(callback.wants_to_stop() for callback in self.callbacks)
        compiling = self.bench.forward.compiling
        # A resumed run must not take the steps since a switch to compiled code again: it might switch at another one.
        save = self.checkpoints is not None and (self.checkpoints.due() or leave or compiling.has_switched)
        compiling.has_switched = False
        look, leave, save = processes.agreed(look, leave, save)
        if self.guard and look:
            _ = self.history.rows
            self.guard.check(phase, number)
        if self.checkpoints and save:
            self.checkpoints.save(self._checkpoint(index, number + 1))
        if leave:
            left = "the run can be resumed" if self.checkpoints else "without an output folder (out=) nothing is kept"
            raise Stopped(f"Stopped after step {number} of {phase.name}; {left}.")

    def _checkpoint(self, index: int, step: int) -> Checkpoint:
        bench = self.bench
        weights = sharding.collected(bench.model.state_dict())
        tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in weights.items()}
        tensors |= {f"buffer.{name}": buffer for name, buffer in unsaved_buffers(bench.model).items()}
        for number, phase in enumerate(self.phases[: index + 1]):
            tensors |= {f"phase.{number}.{name}": tensor for name, tensor in phase.state().items()}
        for number, callback in enumerate(self.callbacks):
            tensors |= {f"callback.{number}.{name}": tensor for name, tensor in callback.state().items()}
        self._require_finite(f"in step {step - 1} of {self.phases[index].name}")
        bench.meter.tick()
        extra = {
            "history": self.history.rows,
            "cost": bench.cost.to_dict(),
            "phases": [phase.name for phase in self.phases],
            "guard": self.guard.state() if self.guard else None,
            "code": bench.forward.compiling.state(),
        }
        return Checkpoint(phase=index, step=step, tensors=tensors, extra=extra)

    def _restore(self, done: Checkpoint) -> None:
        if done.extra.get("phases") != [phase.name for phase in self.phases]:
            raise UsageError(
                f"The checkpoint belongs to a run with the phases {done.extra.get('phases')}, not to this one. "
                "Resume with the command that started the run."
            )
        try:
            sharding.load(self.bench.model, _under("model.", done))
            kept = _under("buffer.", done)
            for name, buffer in unsaved_buffers(self.bench.model).items():
                buffer.copy_(kept.get(name, buffer))
            self.bench.meter.cost = Cost(**done.extra["cost"])
            if "code" in done.extra:  # not in checkpoints of version 0.1
                self.bench.forward.compiling.load_state(done.extra["code"])
            if self.guard and done.extra["guard"]:
                self.guard.load_state(done.extra["guard"])
            for number, phase in enumerate(self.phases[: done.phase + 1]):
                phase.prepare(self.bench)
                phase.load_state(_under(f"phase.{number}.", done))
                if number < done.phase:
                    phase.release()
            for number, callback in enumerate(self.callbacks):
                callback.load_state(_under(f"callback.{number}.", done))
            self.history = History([dict(row) for row in done.extra["history"]], tell=self.history.tell)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError, RuntimeError) as error:
            if isinstance(error, UsageError | RunError):
                raise
            raise UsageError(f"The checkpoint {done.name} does not fit this run: {error}") from error

    def _require_finite(self, when: str) -> None:
        finite = {name: sharding.local(tensor).isfinite().all() for name, tensor in self.bench.model.named_parameters()}
        if self.bench.sharded:  # this process's shard of a weight may be finite
            flags = exchange.summed(torch.stack(list(finite.values())).long())
            finite = dict(zip(finite, flags == processes.count(), strict=True))
        broken = [name for name, fine in finite.items() if not fine]
        if broken:
            raise RunError(
                f"The weights of {broken[0]} became infinite or NaN {when}. Nothing was changed. "
                "Use a smaller learning rate, and check the model's weights before the run."
            )


def unsaved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that a model's state dict omits; training mode may still change them."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


def _under(mark: str, done: Checkpoint) -> dict[str, Tensor]:
    return {name.removeprefix(mark): tensor for name, tensor in done.tensors.items() if name.startswith(mark)}
