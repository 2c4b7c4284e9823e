"""The one loop: every method's phases run here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from accelerate.utils import set_seed
from torch import Tensor

from unweave.engine.batches import derive_seed
from unweave.engine.checkpoint import Checkpoint, Checkpoints
from unweave.engine.history import History, Tell
from unweave.engine.phase import Logged, Phase
from unweave.engine.progress import ProgressLine
from unweave.engine.workbench import Cost, Workbench
from unweave.errors import RunError, Stopped, UsageError
from unweave.randomness import own_random_numbers

Watcher: TypeAlias = Callable[[Phase, int], Logged]


def run_phases(
    bench: Workbench,
    phases: Sequence[Phase],
    *,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    progress: ProgressLine | None = None,
    watch: Watcher | None = None,
    stop: Callable[[], bool] | None = None,
    tell: Tell | None = None,
) -> History:
    """Run the phases in order on the workbench's model and return what they logged.

    The random numbers of a step depend on the seed, the phase and the step only, so a run that resumes from
    a checkpoint goes on exactly as if it had never stopped. The caller's random generators are left alone.
    ``watch`` is called after each step; what it returns is logged with it. ``stop`` is asked after each step whether
    to leave: then a checkpoint is written, and `Stopped` raised. ``tell`` gets the rows of the history as they are
    read: at checkpoints, when progress is shown, and at the end of a phase.
    """
    done = checkpoints.newest() if checkpoints and resume else None
    history = History(list(done.extra["history"]) if done else None, tell=tell)
    if done:
        _restore(bench, phases, done)
    with own_random_numbers(bench.device), bench.clock(), progress or ProgressLine(show=False) as line:
        for index, phase in enumerate(phases):
            if done and index < done.phase:
                continue
            first = 0
            if done and index == done.phase:
                first = done.step
            else:
                _begin(bench, phases, index, history=history, checkpoints=checkpoints)
            _run_steps(
                bench, phases, index, first, history=history, checkpoints=checkpoints, line=line, watch=watch, stop=stop
            )
            phase.finish()
            _ = history.rows  # raises where a value is not finite
    bench.mode("eval")
    _require_finite(bench, "in the last step")
    return history


def _begin(
    bench: Workbench,
    phases: Sequence[Phase],
    index: int,
    *,
    history: History,
    checkpoints: Checkpoints | None,
) -> None:
    phase = phases[index]
    set_seed(derive_seed(bench.seed, phase.name, "begin") % 2**32)
    phase.prepare(bench)
    phase.begin()
    if checkpoints and index > 0:
        checkpoints.save(_checkpoint(bench, phases, index, 0, history))


def _run_steps(
    bench: Workbench,
    phases: Sequence[Phase],
    index: int,
    first: int,
    *,
    history: History,
    checkpoints: Checkpoints | None,
    line: ProgressLine,
    watch: Watcher | None,
    stop: Callable[[], bool] | None,
) -> None:
    phase = phases[index]
    line.phase(phase.name, steps=phase.steps, done=first)
    for number in range(first, phase.steps):
        set_seed(derive_seed(bench.seed, phase.name, number) % 2**32)
        bench.forwards.step(number - first, left=phase.steps - number)
        logged = phase.step(number)
        history.add(phase.name, number, {**logged, **watch(phase, number)} if watch else logged)
        if line.due():
            line.show(number + 1, history.rows[-1])
        leave = checkpoints is not None and stop is not None and stop()
        if checkpoints and (leave or checkpoints.due()):
            checkpoints.save(_checkpoint(bench, phases, index, number + 1, history))
        if leave:
            raise Stopped(f"Stopped after step {number} of {phase.name}; it can be resumed.")


def _checkpoint(bench: Workbench, phases: Sequence[Phase], index: int, step: int, history: History) -> Checkpoint:
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in bench.model.state_dict().items()}
    for number, phase in enumerate(phases[: index + 1]):
        tensors |= {f"phase.{number}.{name}": tensor for name, tensor in phase.state().items()}
    _require_finite(bench, f"in step {step - 1} of {phases[index].name}")
    bench.tick()
    extra = {
        "history": history.rows,
        "cost": bench.cost.to_dict(),
        "phases": [phase.name for phase in phases],
    }
    return Checkpoint(phase=index, step=step, tensors=tensors, extra=extra)


def _restore(bench: Workbench, phases: Sequence[Phase], done: Checkpoint) -> None:
    if done.extra.get("phases") != [phase.name for phase in phases]:
        raise UsageError(
            f"The checkpoint belongs to a run with the phases {done.extra.get('phases')}, not to this one. "
            "Resume with the command that began the run."
        )
    try:
        weights = {name.removeprefix("model."): t for name, t in done.tensors.items() if name.startswith("model.")}
        bench.model.load_state_dict(weights)
        bench.cost = Cost(**done.extra["cost"])
        for number, phase in enumerate(phases[: done.phase + 1]):
            phase.prepare(bench)
            mark = f"phase.{number}."
            phase.load_state({name.removeprefix(mark): t for name, t in done.tensors.items() if name.startswith(mark)})
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, UsageError | RunError):
            raise
        raise UsageError(f"The checkpoint {done.name} does not fit this run: {error}") from error


def _require_finite(bench: Workbench, when: str) -> None:
    broken = [name for name, tensor in bench.model.named_parameters() if not tensor.isfinite().all()]
    if broken:
        raise RunError(
            f"The weights of {broken[0]} became infinite or NaN {when}. Nothing was changed. "
            "Take a smaller learning rate, and check the model's weights before the run."
        )
