"""`unlearn`: run a method on a copy of a model, and write what came out of it."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import safetensors.torch
import torch
from rich.progress import Progress
from torch import nn

from unweave.data import pick_device
from unweave.engine import Checkpoints, Cost, History, Phase, Workbench, run_phases
from unweave.engine.checkpoint import write_whole
from unweave.engine.progress import ProgressLine
from unweave.engine.workbench import Precision
from unweave.errors import RunError, Stopped, UsageError, unknown
from unweave.evaluation import Look, Scores, Watch, evaluate, predict
from unweave.evaluation.accuracy import accuracy_and_losses
from unweave.evaluation.watch import Watcher
from unweave.losses import Loss, cross_entropy
from unweave.methods import Method, find_method
from unweave.settings import Settings
from unweave.split import Split


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
    precision: Precision = "float32",
    progress: bool | Progress | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    judge: Split | None = None,
    look: Look | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> Result:
    """Make a copy of the model forget the split's forget set. The model given is never changed.

    ``settings`` are the method's own (``unweave methods NAME`` lists them), on top of its ``profile``. With
    ``out``, the run writes a folder: configuration, history, weights, and scores on ``split`` and ``test``;
    it appears whole at the end. A run that was stopped goes on exactly with ``resume=True``. ``loss`` maps
    (model, batch) to one loss per sample. ``initial`` returns the model as it was before training, for ``retrain``.
    ``about`` is added to the configuration on record. With ``watch``, the history also holds accuracies of the three
    subsets. ``judge`` is the split that scores and accuracies are measured on, where it is another than the one
    unlearned with; ``look`` is how models are observed for the scores. ``stop`` is asked after every step whether to
    leave; a run in a folder then raises `Stopped` and can be resumed.

    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> split = Split(data, forget=[0, 1], adjacent=[2, 3], remote=[4, 5, 6, 7])
    >>> result = unlearn(nn.Linear(4, 2), split, method="ga", learning_rate=0.1)
    >>> result.cost.sample_gradients
    10
    """
    chosen = find_method(method)
    configured = chosen.configure(settings, profile=profile)
    chosen.check(split)
    where = check_request(device=device, precision=precision, out=out, resume=resume)
    config = {
        "method": chosen.name,
        "profile": profile or next(iter(chosen.profiles)),
        "settings": configured.to_dict(),
        "seed": seed,
        "precision": precision,
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
        initial=initial,
    )
    folder = OutputFolder(Path(out), config, resume=resume) if out is not None else None
    try:
        history = run_phases(
            bench,
            phases,
            checkpoints=folder.checkpoints if folder else None,
            resume=resume,
            progress=ProgressLine(show=progress, title=chosen.name),
            watch=Watcher(watch, judge, test) if watch else None,
            stop=stop,
        )
        for module, original in zip(bench.model.modules(), model.modules(), strict=True):
            module.training = original.training
        scores = evaluate(bench.model, judge, test, original=model, look=look, device=where) if folder else None
        home = next(model.parameters()).device
        result = Result(bench.model.to(home), history, bench.cost, chosen.name, configured, scores)
        if folder:
            folder.finish(result, stages=_between(folder.checkpoints, phases, model, judge, where))
    except BaseException as error:
        kept = folder.abandon() if folder else None
        if kept and isinstance(error, RunError) and not isinstance(error, Stopped):
            raise RunError(f"{error} The last good weights are in {kept}.") from error
        raise
    return result


def check_request(
    *,
    device: str | torch.device | None,
    precision: str,
    out: str | os.PathLike[str] | None,
    resume: bool,
) -> torch.device:
    """Refuse what cannot work before any work is done; return the device."""
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
    if out is not None:
        target = Path(out)
        refuse_existing(target)
        work = unfinished(target)
        if work.exists() and not resume:
            raise UsageError(f"{work} holds an unfinished run. Go on with it (resume=True, --resume) or remove it.")
        if resume and not work.exists():
            raise UsageError(f"There is no unfinished run at {work} to resume. Start it without resume.")
    return pick_device(device)


def unfinished(target: Path) -> Path:
    """Return where the work on a folder happens until it is done."""
    return target.with_name(target.name + ".unfinished")


class OutputFolder:
    """The folder of one run. Work happens beside it, in ``NAME.unfinished``; at the end it is renamed."""

    def __init__(self, target: Path, config: Mapping[str, Any], *, resume: bool) -> None:
        self.target, self.config = target, config
        self.work = unfinished(target)
        if resume:
            self._check_same()
        else:
            try:
                self.work.mkdir(parents=True)
                self._write("config.json", json.dumps(config, indent=2) + "\n")
            except OSError as error:
                raise RunError(f"The output folder {target} cannot be written: {error}") from error
        self.checkpoints = Checkpoints(self.work / "checkpoints")

    def _check_same(self) -> None:
        try:
            before = json.loads((self.work / "config.json").read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.work}/config.json cannot be read ({error}). Remove the folder.") from error
        changed = sorted(
            key for key in {*before, *self.config} if before.get(key) != json.loads(json.dumps(self.config.get(key)))
        )
        if changed:
            raise UsageError(
                f"The unfinished run at {self.work} was begun with another {', '.join(changed)}. "
                "Resume with the values that began it, or remove the folder."
            )

    def _write(self, name: str, content: str) -> None:
        write_whole(self.work / name, content.encode())

    def abandon(self) -> Path | None:
        """Leave nothing behind that could not be resumed; return the newest checkpoint, if there is one."""
        newest = self.checkpoints.newest_file()
        if newest is None:
            remove_folder(self.work)
        return newest

    def finish(self, result: Result, *, stages: Mapping[str, Any]) -> None:
        """Write the results, then let the folder appear under its name."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in result.model.state_dict().items()}
        try:
            write_whole(self.work / "model.safetensors", safetensors.torch.save(_unshared(tensors)))
            self._write("history.jsonl", result.history.to_jsonl())
            scores = result.scores.to_dict() if result.scores else {}
            content = {**scores, **({"stages": stages} if stages else {}), "cost": result.cost.to_dict()}
            self._write("scores.json", json.dumps(content, indent=2) + "\n")
            self.checkpoints.prune()
            refuse_existing(self.target)
            if self.target.exists():
                self.target.rmdir()  # an empty folder that the user made
            self.work.rename(self.target)
        except OSError as error:
            raise RunError(f"The results cannot be written to {self.target}: {error}") from error


def _between(
    checkpoints: Checkpoints, phases: Sequence[Phase], model: nn.Module, split: Split, device: torch.device
) -> dict[str, Any]:
    """Return accuracy and losses of the forget samples after each phase but the last, from its kept weights."""
    found = {}
    for phase, weights in zip(phases[:-1], checkpoints.between(len(phases)), strict=True):
        between = copy.deepcopy(model)
        between.load_state_dict(weights)
        predictions = predict(between, split.samples, split.rows("forget"), device=device)
        found[phase.name] = accuracy_and_losses(predictions)
    return found


def refuse_existing(target: Path) -> None:
    """Refuse to write where something is already."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists and is not empty. Choose another --out, or remove it.")


def _unshared(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give tied weights their own memory: safetensors refuses tensors that share it."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Load weights that a run wrote into a model of the same architecture."""
    file = Path(path)
    file = file / "model.safetensors" if file.is_dir() else file
    if file.suffix != ".safetensors":
        raise UsageError(
            f"{file.name} is no safetensors file. Pickled weights can run code when opened, so they are refused: "
            "convert them with safetensors.torch.save_file(state_dict, path)."
        )
    try:
        model.load_state_dict(safetensors.torch.load_file(file))
    except (OSError, safetensors.SafetensorError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    except RuntimeError as error:
        raise UsageError(f"{file} does not fit the model: {error}") from error
    return model


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)
