"""Run a request: check, find the rows, load, unlearn, write the record, upload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave._version import __version__
from unweave.api import Result, Split, unlearn
from unweave.data import SUBSETS, as_keep_data
from unweave.engine import Callback, Checkpoints, Compute, Limits, Note, Progress
from unweave.errors import UsageError
from unweave.methods import Method, Retrain
from unweave.record import NAME, TEST_SPLIT, signing, write
from unweave.requests.hub_upload import check_upload, upload
from unweave.requests.models import ModelSource
from unweave.requests.recipes import BRIEF, recipe_of
from unweave.requests.resolving import Prepared, Rows, prepare
from unweave.requests.roles import LANGUAGE
from unweave.requests.run_files import RESOLVED, RequestFiles, resolved_text
from unweave.runs import SaveWith, check_folder, tidy, unfinished
from unweave.runtime import processes
from unweave.storage import SCORES

if TYPE_CHECKING:
    from unweave.requests.request import Request


def compute_of(request: Request) -> Compute:
    """Return where and how a request computes."""
    return Compute(
        request.device,
        precision=request.precision,  # type: ignore[arg-type]
        compile=request.compile,  # type: ignore[arg-type]
        micro_batch=request.micro_batch,
        max_memory=request.max_memory,
        shard=request.shard or None,
        keep_data=as_keep_data(request.keep_data),
    )


def load_rows(request: Request, rows: Rows) -> Prepared:
    """Load the model of a request, decode its data and split it."""
    how: dict[str, Any] = {"skip_unreadable": request.skip_unreadable, "keep_data": request.keep_data}
    return prepare(rows, device=request.device, **how)


def run_request(request: Request, *, resume: bool, callbacks: Sequence[Callback]) -> Result:
    """Unlearn as a request says. What can be refused is refused before anything is decoded or computed."""
    going_on = resume and request.out is not None and unfinished(Path(request.out)).exists()
    if request.out is not None:
        out = Path(request.out)
        processes.first(lambda: check_folder(out, resume=going_on))
    compute, guard = compute_of(request), None if request.no_guard else Limits.parse(request.limits)
    compute.check()
    every = [Checkpoints(request.checkpoint_seconds, request.checkpoint_steps), *callbacks]
    rows = request.find()
    check_beforehand(request, rows.checkpoint)
    prepared = load_rows(request, rows)
    asked = with_previous(request)
    if request.id:
        asked.check(prepared.model, prepared.split, prepared.test)
    result = unlearn(
        prepared.model,
        prepared.split,
        with_reference(request, rows, prepared, compute),
        test=prepared.test,
        seed=request.seed,
        out=request.out,
        resume=going_on,
        compute=compute,
        guard=guard,
        profile=request.profile,
        callbacks=[*every, *_beside(request, rows, prepared)],
    )
    if request.out is not None:
        finish(request, asked, result)
    return result


def check_beforehand(request: Request, checkpoint: ModelSource) -> None:
    """Raise a `UsageError` for a wish that could not be met once the work is done."""
    if request.key is not None:
        signing.load_private(Path(request.key))
    if request.push_to_hub:
        if request.out is None:
            raise UsageError("push-to-hub uploads the folder of the run. Give it as --out.")
        check_upload(request.push_to_hub, has_folder=checkpoint.has_folder)
    if request.recipe:
        recipe_of(request.recipe)
    require_recipe(request)


def require_recipe(request: Request) -> None:
    """Raise if the goal needs a model that never saw the forget data, and nothing says how to train one."""
    if not request.recipe and aims_at_retraining(request.chosen()):
        raise UsageError(
            "The goal retrain needs a model that never saw the forget data. It is trained briefly, by the recipe that "
            "the model was trained with: name that, as in --recipe epochs=3 --recipe learning_rate=2e-5."
        )


def with_previous(request: Request) -> Request:
    """Return the request with the record that its own continues: that of the run before, if it has one."""
    if request.previous is None and request.after is not None and (Path(request.after) / NAME).is_file():
        return dataclasses.replace(request, previous=Path(request.after) / NAME)
    return request


def configured(request: Request, rows: Rows) -> Method:
    """Return the method with its settings and, for methods that make up answers, the tokenizer."""
    chosen = request.chosen()
    return chosen.with_given(tokenizer=rows.checkpoint.reader) if rows.checkpoint.kind == LANGUAGE else chosen


def aims_at_retraining(method: Method) -> bool:
    """Return whether a method needs a model that never saw the forget data."""
    return getattr(method, "goal", None) == "retrain"


def with_reference(request: Request, rows: Rows, prepared: Prepared, compute: Compute) -> Method:
    """Return the method. The goal retrain gets a model that is trained briefly, if the request has a recipe."""
    chosen = configured(request, rows)
    require_recipe(request)
    if not request.recipe:
        return chosen
    split, brief = brief_training(request, rows, prepared)

    def reference() -> Result:
        return unlearn(
            prepared.model,
            split,
            brief,
            seed=request.seed + 1,
            compute=compute,
            guard=None,
            callbacks=[Progress(show=False)],
        )

    return chosen.with_given(initial=brief.initial, reference=reference)


def brief_training(request: Request, rows: Rows, prepared: Prepared) -> tuple[Split, Retrain]:
    """Return the data and the method that train a model which never saw the forget data, for a short time."""
    settings, start = recipe_of(request.recipe)
    shorter = dataclasses.replace(settings, epochs=max(1, round(BRIEF * settings.epochs)))
    split = Split(prepared.split.samples, *(prepared.split[name] for name in SUBSETS))
    return split, Retrain(initial=lambda: rows.checkpoint.fresh(start), **shorter.to_dict())


def _beside(request: Request, rows: Rows, prepared: Prepared) -> list[Callback]:
    named = {"request": request.id} if request.id else {}
    found: list[Callback] = [Note(unweave=__version__, **named), RequestFiles(request, rows)]
    return [*found, SaveWith(*prepared.parts)] if prepared.parts else found


def finish(request: Request, asked: Request, result: Result) -> None:
    """Write the record and upload the model, if the request wants that."""
    folder = Path(request.out or "")
    if request.id and not processes.first((folder / NAME).exists):
        write(result, asked)
    if request.push_to_hub:
        name = request.push_to_hub
        processes.first(lambda: upload(folder, name))


def is_finished(request: Request) -> bool:
    """Tell whether the output folder holds the finished run of this very request.

    Args:
        request: The request.

    Returns:
        True if nothing is left to compute. The record may still be missing.

    Raises:
        UsageError: The folder holds the run of another request.
    """
    out = Path(request.out or "")
    tidy(out)
    if not (out / SCORES).is_file() or unfinished(out).exists():
        return False
    asked = request.completed()
    text = resolved_text(asked, asked.find(), test=(out / TEST_SPLIT).is_file())
    if not (out / RESOLVED).is_file() or (out / RESOLVED).read_text(encoding="utf-8") != text:
        raise UsageError(f"{out} holds a finished run of another request. Choose another --out, or remove it.")
    return True


def record_later(request: Request) -> None:
    """Write the record of a finished run, if the request wants one that is missing, as after a crash."""
    folder = Path(request.out or "")
    if not request.id or (folder / NAME).exists():
        return
    asked = request.completed()
    prepared = load_rows(asked, asked.find())
    write(folder, with_previous(asked), original=prepared.model, split=prepared.split, test=prepared.test)
