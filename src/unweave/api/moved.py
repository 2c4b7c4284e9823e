"""Where former arguments of `unlearn` went. Passing one raises an error that says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unweave.errors import UsageError

COMPUTE = "pass compute=uw.Compute({name}=...)"
CALLBACK = "pass callbacks=[{call}]"
MOVED = {
    **dict.fromkeys(("device", "precision", "compile", "micro_batch", "max_memory", "shard"), COMPUTE),
    "loss": "pass task=uw.OwnLoss(loss), with recognised= if you can tell which samples the model recognises",
    "limits": "pass guard=uw.Limits(...), or guard=None for no guard",
    "progress": CALLBACK.format(call="uw.Progress(show=...)"),
    "watch": CALLBACK.format(call="uw.Watch(test)"),
    "stop": CALLBACK.format(call="uw.StopWhen(function)"),
    "track": CALLBACK.format(call='uw.Track("tensorboard")'),
    "track_folder": CALLBACK.format(call='uw.Track("tensorboard", folder=...)'),
    "checkpoint_seconds": CALLBACK.format(call="uw.Checkpoints(seconds=...)"),
    "checkpoint_steps": CALLBACK.format(call="uw.Checkpoints(steps=...)"),
    "about": CALLBACK.format(call="uw.Note(name=value)"),
    "judge": CALLBACK.format(call="uw.ScoreOn(split)"),
    "look": CALLBACK.format(call="uw.ScoreOn(look=...)"),
    "earlier": "pass split.after(*earlier) as the split",
    "request": "write the record after the run: uw.record.write(result, uw.Request(id=...))",
    "initial": "it belongs to the method: uw.Retrain(initial=...)",
    "reference": 'it belongs to the method: uw.Unweave(goal="retrain", reference=...)',
}


def refuse_moved(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise a `UsageError` for arguments that have moved, unless the method has a setting of that name.

    >>> refuse_moved({"device": "cpu"}, known=["epochs"])
    Traceback (most recent call last):
    unweave.errors.UsageError: unlearn no longer takes device=: pass compute=uw.Compute(device=...).
    """
    mine = set(known)
    for name in given:
        if name in MOVED and name not in mine:
            raise UsageError(f"unlearn no longer takes {name}=: {MOVED[name].format(name=name)}.")
