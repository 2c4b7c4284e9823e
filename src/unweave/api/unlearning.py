"""`unlearn`: run a method on a copy of a model, and write what came out of it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import nn

from unweave.api.arguments import check_reference, check_request, copied, require_use
from unweave.api.split import Split
from unweave.data import SUBSETS, Partition
from unweave.engine import (
    Checkpoints,
    Cost,
    Guard,
    History,
    Limits,
    Phase,
    ProgressLine,
    Workbench,
    check_trackers,
    run_phases,
    tracked,
)
from unweave.engine.compiling import Compile
from unweave.errors import UsageError, require_seed, require_type
from unweave.evaluation import Look, Scores, Watch, Watcher, accuracy_and_losses, evaluate, predict
from unweave.methods import Method, Reference, find_method, make_method
from unweave.record import Request, record_files
from unweave.runs import (
    AfterPhase,
    OutputFolder,
    certificate_of,
    left_in_order,
    load_weights,
    model_after,
    not_kept,
    refuse_existing,
    remove_folder,
    unfinished,
)
from unweave.runtime import Precision, resolve_precision, sharding
from unweave.storage import fingerprint
from unweave.tasks import Loss, cross_entropy

__all__ = [
    "Result",
    "load_weights",
    "refuse_existing",
    "remove_folder",
    "unfinished",
    "unlearn",
]


LIMITS = Limits()
FEW = 64  # samples, to see that the model takes them


@dataclass(frozen=True)
class Result:
    """What a run gave: the unlearned model, everything that was logged, and what it cost.

    ``checks`` is what the guard saw: losses and accuracies of held samples, by phase and step.
    """

    model: nn.Module
    history: History
    cost: Cost
    method: str
    settings: Method
    scores: Scores | None = None  # where an output folder was asked for
    checks: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        work = f"{len(self.history.rows)} steps, {self.cost.sample_gradients:,} sample gradients"
        return f"Result of {self.method}: {work}, {self.cost.seconds:.1f} s"


def unlearn(
    model: nn.Module,
    split: Split,
    method: str | Method | type[Method] = "two-stage",
    *,
    profile: str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    test: Split | None = None,
    loss: Loss = cross_entropy,
    initial: Callable[[], nn.Module] | None = None,
    reference: Reference | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
    compile: Compile = "auto",
    micro_batch: int | None = None,
    max_memory: int | str | None = None,
    shard: bool | None = None,
    progress: bool | Progress | None = None,
    limits: Limits | Mapping[str, Any] | None = LIMITS,
    request: Request | Mapping[str, Any] | None = None,
    earlier: Sequence[Partition] = (),
    checkpoint_seconds: float | None = None,
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

    ``method`` is a name, a class, or an object that has its settings: ``"two-stage"``, ``TwoStage(alpha=0.25)``.
    ``settings`` are the method's own (``unweave methods NAME`` lists them), on top of its ``profile``. With ``out``,
    the run writes a folder: configuration, history, weights (of a ``peft`` model also its adapter), and scores on
    ``split`` and ``test``; it appears whole at the end. A run that was stopped goes on exactly with ``resume=True``,
    from a checkpoint that is written every minute, or every ``checkpoint_seconds`` or ``checkpoint_steps``. ``loss``
    maps (model, batch) to one loss per sample. ``initial`` returns the model as it was before training, for
    ``retrain``. ``reference`` says what losses data has that was never trained on, for the goal ``retrain`` of
    ``unweave``: a model trained without the forget data, briefly; a split of held-out data; or a list of losses.
    ``about`` is added to the configuration on record. A run that destroys the model is stopped where it breaks one of
    its ``limits``, with a `CollapseError`; None: it is not. With a ``request`` (a `Request`, or a mapping with its id
    and text), the folder also has a deletion record. ``earlier`` are the splits that have been unlearned from the model
    before, so that what they forgot stays forgotten (`Split.after`).

    ``precision`` is that of forward and backward passes (``auto``: bfloat16 on CUDA, float32 elsewhere); weights and
    gradients stay in float32. ``compile`` is ``auto`` (where it saves more time than it takes), ``on`` or ``off``.
    ``micro_batch`` is the most samples that are differentiated at once, ``max_memory`` (``"8GB"``) the most that is
    taken of a CUDA device's memory: a larger batch is cut into pieces, with the same results and one more forward pass.
    A device whose memory runs out does the same by itself. Not in training mode of normalisation.

    Under ``torchrun`` or ``accelerate launch`` several processes share every batch and all else; call this in each of
    them alike. ``shard`` cuts the weights among them too (FSDP2); None: if ``accelerate launch`` was told so.

    With ``watch``, the history also holds accuracies of the three subsets. ``judge`` is the split that scores and
    accuracies are measured on, where it is another than the one unlearned with; ``look`` is how models are observed
    for the scores. ``stop`` is asked after every step whether to leave; the run then raises `Stopped`, and one in
    a folder can be resumed. ``track`` names trackers that Accelerate knows, such as ``tensorboard``, which get the
    history under the name of the output folder, and write below ``track_folder`` (``tracking`` beside the output
    folder).

    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> split = Split(data, forget=[0, 1], adjacent=[2, 3], remote=[4, 5, 6, 7])
    >>> result = unlearn(nn.Linear(4, 2), split, method="ga", learning_rate=0.1)
    >>> result.cost.sample_gradients
    10
    """
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("split", split, Split, "a Split of the training data")
    require_type("test", test, (Split, type(None)), "a Split of the test data")
    require_type("judge", judge, (Split, type(None)), "a Split")
    require_type("earlier", earlier, Sequence, "a list of the splits of earlier requests")
    require_type("limits", limits, (Limits, Mapping, type(None)), "Limits, a mapping of them, or None")
    require_seed(seed)
    require_use(
        find_method(method), model, loss=loss, initial=initial, resume=resume, out=out, kept=bool(out or limits)
    )
    chosen = make_method(method, settings, profile=profile).with_given(initial=initial, reference=reference)
    split = split.after(*earlier) if earlier else split
    chosen.check(split)
    check_reference(getattr(chosen, "reference", None) if reference is None else reference, chosen)
    check_trackers(track)
    limits = Limits.parse(limits) if isinstance(limits, Mapping) else limits
    asked = Request.of(request, model, split, test, out)
    if asked and _is_other(judge, split):
        raise UsageError("A record is about the split that was unlearned with. Leave judge= out, or request=.")
    where = check_request(device=device, precision=precision, compile=compile, out=out, resume=resume)
    config = {
        "method": chosen.name,
        "profile": profile or (chosen.nearest_profile() if isinstance(method, Method) else next(iter(chosen.profiles))),
        "settings": chosen.to_dict(),
        "seed": seed,
        "precision": resolve_precision(precision, where),
        "compile": compile,
        "split": split.hash,
        **({"loss": _name(loss)} if loss is not cross_entropy else {}),
        **({"model": fingerprint(model.state_dict())} if out is not None else {}),
        "limits": limits.to_dict() if limits else None,
        **chosen.on_record(),
        **({"judged_on": judge.hash} if judge and _is_other(judge, split) else {}),
        **({"watch": asdict(watch)} if watch else {}),
        **({"request": asked.id} if asked else {}),
        **(about or {}),
    }
    judge = judge or split
    phases = list(chosen.phases())
    cut = sharding.is_wanted(shard)
    bench = Workbench(
        model if cut else copied(model).to(where),
        split,
        device=where,
        loss=loss,
        seed=seed,
        precision=precision,
        compile=compile,
        micro_batch=micro_batch,
        max_memory=max_memory,
        shard=cut,
    )
    folder = None
    if out is not None:
        for some in filter(None, (judge, test)):  # to say so now, not when all the work is done
            predict(bench.like(model), some.samples, some.rows(*SUBSETS)[:FEW], device=where, precision=precision)
        folder = OutputFolder(
            Path(out), config, resume=resume, checkpoint_seconds=checkpoint_seconds, checkpoint_steps=checkpoint_steps
        )
    with left_in_order(folder), tracked(track, track_folder, out=out, config=config) as tell:
        guard = Guard(bench, limits, forget="forget" in chosen.needs) if limits else None
        history = run_phases(
            bench,
            phases,
            checkpoints=folder.checkpoints if folder else None,
            resume=resume,
            progress=ProgressLine(show=progress, title=chosen.name),
            watch=Watcher(watch, judge, test) if watch else None,
            stop=stop,
            guard=guard,
            tell=tell,
        )
        for module, original in zip(bench.model.modules(), model.modules(), strict=True):
            module.training = original.training
        certificate, scores = None, None
        if folder:
            kept = _kept_between(folder, model, bench) if asked else not_kept
            certificate = certificate_of(config, kept, method=chosen)
            folder.worked_out = None if bench.sharded else bench.model  # kept, should anything go wrong from here on
            scores = evaluate(
                bench.model,
                judge,
                test,
                original=bench.like(model),
                certificate=certificate,
                look=look,
                device=where,
                precision=precision,
            )
        checks = tuple(guard.checks) if guard else ()
        released = bench.release().to(next(model.parameters()).device)
        result = Result(released, history, bench.cost, chosen.name, chosen, scores, checks)
        if folder and scores:
            files = _files(result, _between(folder.checkpoints, phases, model, judge, bench))
            private: dict[str, str] = {}
            if asked:
                record, private = record_files(
                    asked,
                    config=config,
                    after=result.model,
                    split=split,
                    test=test,
                    scores=scores,
                    cost=bench.cost,
                    begun=folder.begun,
                    device=where,
                    certificate=certificate,
                )
                files |= record
            folder.finish(result.model, files, private=private)
    return result


def _is_other(judge: Split | None, split: Split) -> bool:
    """Tell whether scores are measured on something else: other rows, or other data under the same."""
    return judge is not None and (judge != split or judge.samples is not split.samples)


def _name(loss: Loss) -> str:
    """Return by which name a loss is known again; what it computes, nobody can tell."""
    return f"{loss.__module__}.{getattr(loss, '__qualname__', type(loss).__qualname__)}"


def _files(result: Result, stages: Mapping[str, Any]) -> dict[str, str]:
    """Return the text files of a run's folder."""
    scores = (result.scores.to_dict() if result.scores else {}) | ({"stages": stages} if stages else {})
    return {
        "history.jsonl": result.history.to_jsonl(),
        "scores.json": _indented({**scores, "cost": result.cost.to_dict()}),
    }


def _kept_between(folder: OutputFolder, model: nn.Module, bench: Workbench) -> AfterPhase:
    """Return what gives the model as it was after a phase, kept as the workbench keeps its own."""

    def after_phase(phase: int) -> nn.Module | None:
        found = model_after(folder.work, copy.deepcopy(model), phase)
        return None if found is None else bench.like(found)

    return after_phase


def _between(
    checkpoints: Checkpoints,
    phases: Sequence[Phase],
    model: nn.Module,
    split: Split,
    bench: Workbench,
) -> dict[str, Any]:
    """Return accuracy and losses of the forget samples after each phase but the last, from the weights kept there."""
    found = {}
    for number, weights in checkpoints.between():
        between = copy.deepcopy(model)
        between.load_state_dict(weights)
        rows = split.rows("forget")
        predictions = predict(bench.like(between), split.samples, rows, device=bench.device, precision=bench.precision)
        found[phases[number].name] = accuracy_and_losses(predictions)
    return found


def _indented(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"
