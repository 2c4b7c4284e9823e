"""`unlearn`: run a method on a copy of a model, and write what came out of it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from rich.progress import Progress
from torch import nn

from unweave.data import pick_device
from unweave.engine import Checkpoints, Cost, History, Phase, Workbench, run_phases
from unweave.engine.checkpoint import EVERY_SECONDS
from unweave.engine.compiled import Compile
from unweave.engine.precision import Precision, resolve_precision
from unweave.engine.progress import ProgressLine
from unweave.errors import RunError, Stopped, UsageError, unknown
from unweave.evaluation import Look, Scores, Watch, evaluate, predict
from unweave.evaluation.accuracy import accuracy_and_losses
from unweave.evaluation.watch import Watcher
from unweave.losses import Loss, cross_entropy
from unweave.methods import Method, find_method
from unweave.output import OutputFolder, load_weights, refuse_existing, remove_folder, unfinished
from unweave.settings import Settings
from unweave.split import Split
from unweave.tracking import Tracking, check_trackers

__all__ = ["Result", "check_request", "load_weights", "refuse_existing", "remove_folder", "unfinished", "unlearn"]


@dataclass(frozen=True)
class Result:
    """What a run gave: the unlearned model, everything that was logged, and what it cost."""

    model: nn.Module
    history: History
    cost: Cost
    method: str
    settings: Settings
    scores: Scores | None = None  # where an output folder was asked for


def unlearn(
    model: nn.Module,
    split: Split,
    method: str | Method = "two-stage",
    *,
    profile: str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    test: Split | None = None,
    loss: Loss = cross_entropy,
    initial: Callable[[], nn.Module] | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",  # noqa: A002
    progress: bool | Progress | None = None,
    checkpoint_seconds: float = EVERY_SECONDS,
    checkpoint_steps: int | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    judge: Split | None = None,
    look: Look | None = None,
    stop: Callable[[], bool] | None = None,
    track: Sequence[str] = (),
    track_folder: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Make a copy of the model forget the split's forget set. The model given is never changed.

    ``settings`` are the method's own (``unweave methods NAME`` lists them), on top of its ``profile``. With
    ``out``, the run writes a folder: configuration, history, weights, and scores on ``split`` and ``test``;
    it appears whole at the end. A run that was stopped goes on exactly with ``resume=True``, from a checkpoint that
    is written every ``checkpoint_seconds`` or ``checkpoint_steps``. ``loss`` maps (model, batch) to one loss per
    sample. ``initial`` returns the model as it was before training, for ``retrain``. ``about`` is added to the
    configuration on record.

    ``precision`` is that of forward and backward passes (``auto``: bfloat16 on CUDA, float32 elsewhere); weights and
    gradients stay in float32. ``compile`` is ``auto`` (where it saves more time than it takes), ``on`` or ``off``.

    With ``watch``, the history also holds accuracies of the three subsets. ``judge`` is the split that scores and
    accuracies are measured on, where it is another than the one unlearned with; ``look`` is how models are observed
    for the scores. ``stop`` is asked after every step whether to leave; a run in a folder then raises `Stopped` and
    can be resumed. ``track`` names trackers that Accelerate knows, such as ``tensorboard``, which get the history
    under the name of the output folder, and write below ``track_folder`` (``tracking`` beside the output folder).

    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> split = Split(data, forget=[0, 1], adjacent=[2, 3], remote=[4, 5, 6, 7])
    >>> result = unlearn(nn.Linear(4, 2), split, method="ga", learning_rate=0.1)
    >>> result.cost.sample_gradients
    10
    """
    chosen = find_method(method)
    configured = chosen.configure(settings, profile=profile)
    chosen.check(split)
    check_trackers(track)
    where = check_request(device=device, precision=precision, compile=compile, out=out, resume=resume)
    config = {
        "method": chosen.name,
        "profile": profile or next(iter(chosen.profiles)),
        "settings": configured.to_dict(),
        "seed": seed,
        "precision": resolve_precision(precision, where),
        "compile": compile,
        "split": split.hash,
        **({"judged_on": judge.hash} if judge is not None and judge != split else {}),
        **({"watch": asdict(watch)} if watch else {}),
        **(about or {}),
    }
    judge = judge or split
    phases = list(chosen.phases(configured))
    bench = Workbench(
        copy.deepcopy(model).to(where),
        split,
        device=where,
        loss=loss,
        seed=seed,
        precision=precision,
        compile=compile,
        initial=initial,
    )
    folder = None
    if out is not None:
        folder = OutputFolder(
            Path(out), config, resume=resume, checkpoint_seconds=checkpoint_seconds, checkpoint_steps=checkpoint_steps
        )
    tell = None
    try:
        tell = _tracking(track, track_folder, out, config)
        history = run_phases(
            bench,
            phases,
            checkpoints=folder.checkpoints if folder else None,
            resume=resume,
            progress=ProgressLine(show=progress, title=chosen.name),
            watch=Watcher(watch, judge, test) if watch else None,
            stop=stop,
            tell=tell,
        )
        for module, original in zip(bench.model.modules(), model.modules(), strict=True):
            module.training = original.training
        scores = None
        if folder:
            scores = evaluate(bench.model, judge, test, original=model, look=look, device=where, precision=precision)
        home = next(model.parameters()).device
        result = Result(bench.release().to(home), history, bench.cost, chosen.name, configured, scores)
        if folder:
            stages = _between(folder.checkpoints, phases, model, judge, where, precision)
            folder.finish(result.model.state_dict(), _files(result, stages))
    except BaseException as error:
        kept = folder.abandon() if folder else None
        if kept and isinstance(error, RunError) and not isinstance(error, Stopped):
            raise RunError(f"{error} The last good weights are in {kept}.") from error
        raise
    finally:
        if tell:
            tell.close()
    return result


def _tracking(
    track: Sequence[str],
    folder: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    config: Mapping[str, Any],
) -> Tracking | None:
    if not track:
        return None
    place = Path(folder) if folder is not None else (Path(out).parent if out is not None else Path()) / "tracking"
    name = Path(out).name if out is not None else f"{config['method']}.seed-{config['seed']}"
    return Tracking(track, name=name, folder=place, config=config)


def _files(result: Result, stages: Mapping[str, Any]) -> dict[str, str]:
    """Return the text files of a run's folder."""
    scores = result.scores.to_dict() if result.scores else {}
    content = {**scores, **({"stages": stages} if stages else {}), "cost": result.cost.to_dict()}
    return {"history.jsonl": result.history.to_jsonl(), "scores.json": json.dumps(content, indent=2) + "\n"}


def _between(
    checkpoints: Checkpoints,
    phases: Sequence[Phase],
    model: nn.Module,
    split: Split,
    device: torch.device,
    precision: Precision,
) -> dict[str, Any]:
    """Return accuracy and losses of the forget samples after each phase but the last, from the weights kept there."""
    found = {}
    for number, weights in checkpoints.between():
        between = copy.deepcopy(model)
        between.load_state_dict(weights)
        predictions = predict(between, split.samples, split.rows("forget"), device=device, precision=precision)
        found[phases[number].name] = accuracy_and_losses(predictions)
    return found


def check_request(
    *,
    device: str | torch.device | None,
    precision: str,
    compile: str = "auto",  # noqa: A002
    out: str | os.PathLike[str] | None,
    resume: bool,
) -> torch.device:
    """Refuse what cannot work before any work is done; return the device."""
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
    if compile not in get_args(Compile):
        raise unknown("way to compile", compile, get_args(Compile))
    if out is not None:
        target = Path(out)
        refuse_existing(target)
        work = unfinished(target)
        if work.exists() and not resume:
            raise UsageError(f"{work} holds an unfinished run. Go on with it (resume=True, --resume) or remove it.")
        if resume and not work.exists():
            raise UsageError(f"There is no unfinished run at {work} to resume. Start it without resume.")
    return pick_device(device)
