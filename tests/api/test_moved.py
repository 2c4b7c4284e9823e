"""An argument of former versions is refused with what to write instead; that was tried."""

from __future__ import annotations

import pytest

import unweave as uw
from tests.helpers.advised import HOW, classes, inputs, linear, run, split
from unweave.api.moved import MOVED
from unweave.evaluation import Look

QUIET = uw.Progress(show=False)
COMPUTE = {"device": "cpu", "precision": "float32", "compile": "off", "micro_batch": 8, "shard": False}
OTHER = uw.Split((inputs(), classes()), range(3), range(3, 9))
CALLBACKS = {
    "progress": lambda folder: uw.Progress(show=False),
    "watch": lambda folder: uw.Watch(OTHER),
    "stop": lambda folder: uw.StopWhen(lambda: False),
    "track": lambda folder: uw.Track("tensorboard", folder=folder / "board"),
    "track_folder": lambda folder: uw.Track("tensorboard", folder=folder / "board"),
    "checkpoint_seconds": lambda folder: uw.Checkpoints(seconds=5),
    "checkpoint_steps": lambda folder: uw.Checkpoints(steps=5),
    "about": lambda folder: uw.Note(name="value"),
    "judge": lambda folder: uw.ScoreOn(OTHER),
}
NEEDS_CUDA = ("max_memory",)


def follow(name, folder):
    """Call `unlearn` as the error says."""
    if name in COMPUTE:
        values = {"device": "cpu", name: COMPUTE[name]}
        return run(batch_size=8, compute=uw.Compute(**values))
    if name in CALLBACKS:
        made = CALLBACKS[name](folder)
        return run(out=folder / "run", callbacks=[made] if name == "progress" else [made, QUIET])
    match name:
        case "look":
            some = split()
            return run(some=some, out=folder / "run", callbacks=[uw.ScoreOn(look=Look(some)), QUIET])
        case "loss":
            return run(task=uw.OwnLoss(uw.Classification().batch_losses))
        case "limits":
            return run(guard=uw.Limits(samples=9)), run(guard=None)
        case "earlier":
            return run(some=split(forget=range(4)).after(earlier()))
        case "request":
            return uw.record.write(run(out=folder / "run"), uw.Request(id="17"))
        case "initial":
            return uw.unlearn(linear(), split(), uw.Retrain(initial=linear, epochs=1, learning_rate=0.1), **HOW)
        case "reference":
            return uw.unlearn(linear(), split(), uw.Unweave(goal="retrain", reference=[0.5, 1.0], epochs=1), **HOW)
    return None


def earlier():
    return split(forget=range(4, 6), adjacent=range(6, 18), remote=range(18, 48))


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
@pytest.mark.parametrize("name", [name for name in MOVED if name not in NEEDS_CUDA])
def test_what_took_the_place_of_an_argument_works(name, tmp_path):
    assert follow(name, tmp_path) is not None
