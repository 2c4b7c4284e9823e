"""Doors for calls: a public function with arguments that fit, one or two of which are replaced by something odd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

import unweave as uw
from tests.helpers.fuzz_requests import CORPUS
from tests.helpers.fuzz_values import odd
from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer
from unweave.methods import all_methods

DATA = (torch.randn(12, 3, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3)
PARTS = {"forget": [0, 3], "adjacent": [6, 9], "remote": [1, 2, 4, 5, 7, 8, 10, 11]}


@dataclass(frozen=True)
class Call:
    """A function, and arguments that fit: some by position, the others by name."""

    function: Callable[..., Any]
    positional: tuple[Any, ...] = ()
    named: dict[str, Any] | None = None
    places: tuple[int | str, ...] = ()  # where the user says where to write: a link that the user names is followed

    def with_odd(self, chance: Random) -> None:
        """Call with one or two arguments replaced."""
        positional, named = list(self.positional), dict(self.named or {})
        for _ in range(chance.choice((1, 1, 2))):
            spot = chance.choice([*range(len(positional)), *named])
            value = odd(chance)
            if spot in self.places and isinstance(value, Path):
                value = Path("nowhere")
            if isinstance(spot, int):
                positional[spot] = value
            else:
                named[spot] = value
        self.function(*positional, **named)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


@cache
def split() -> uw.Split:
    return uw.Split(DATA, **PARTS)


def calls(folder: Path) -> list[tuple[int, Call]]:
    """Return the calls, each with a weight: how often it is tried. Files go to the folder."""
    losses, basis = torch.rand(4), [[torch.rand(3)], [torch.rand(3)]]
    gradient = [torch.rand(3)]
    out = str(folder / "out")
    found = [
        (8, Call(uw.Split, (DATA,), {**PARTS, "forgotten": [], "collate": None, "allow_empty": False})),
        (
            6,
            Call(
                uw.Split.by_class,
                (DATA,),
                {"fine": DATA[1], "forget": 1, "names": None, "labels": None, "allow_empty": True},
            ),
        ),
        (
            4,
            Call(
                uw.Split.where,
                (DATA,),
                {"forget": [True] * 2 + [False] * 10, "adjacent": [False] * 12, "allow_empty": True},
            ),
        ),
        (
            4,
            Call(
                uw.Split.by_neighbours,
                (DATA,),
                {"forget": [0], "features": DATA[0], "k": 2, "fraction": 0.5, "rule": "fixed"},
            ),
        ),
        (4, Call(split().with_noise, (), {"remote_to_adjacent": 0.5, "adjacent_to_remote": 0.0, "seed": 0})),
        (2, Call(split().after, (split(),))),
        (2, Call(split().rows, ("forget",))),
        (2, Call(split().__getitem__, ("forget",))),
        (2, Call(split().save, (folder / "split.json",))),
        (2, Call(uw.Split.load, (folder / "there.json", DATA))),
        (4, Call(split().entanglement, (), {"features": DATA[0], "k": 2, "groups": DATA[1], "names": None})),
        (4, Call(split().inspect, (), {"features": DATA[0], "k": 2, "groups": None, "names": None})),
        (6, Call(uw.losses.squared_wasserstein, (losses, losses))),
        (4, Call(uw.losses.clipped, (losses,), {"at": 1.0})),
        (4, Call(uw.losses.averaged_quantiles, (losses, 2))),
        (4, Call(uw.losses.divergence, (torch.rand(2, 3), torch.rand(2, 3)), {"temperature": 1.0})),
        (4, Call(uw.losses.odds_of, (losses,))),
        (4, Call(uw.losses.cross_entropy, (model(), DATA))),
        (4, Call(uw.losses.log_odds, (model(), DATA))),
        (5, Call(uw.projection.remove_span, (gradient,), {"basis": basis, "ridge": 0.0})),
        (4, Call(uw.projection.gram_matrix, (basis,))),
        (
            5,
            Call(
                uw.Compute,
                ("cpu",),
                {
                    "precision": "auto",
                    "compile": "off",
                    "micro_batch": 4,
                    "max_memory": "1GB",
                    "shard": None,
                    "keep_data": "auto",
                },
            ),
        ),
        (4, Call(uw.Checkpoints, (), {"seconds": 1.0, "steps": 2})),
        (3, Call(uw.StopWhen, (lambda: False,))),
        (3, Call(uw.Progress, (), {"show": False})),
        (3, Call(uw.ScoreOn, (split(),))),
        (3, Call(uw.Watch, (split(),))),
        (3, Call(uw.Track, ("tensorboard",), {"folder": folder / "track"})),
        (2, Call(uw.load_answers, (folder / "answers.json",))),
        (2, Call(uw.read_logs, (folder / "logs.json",))),
        (2, Call(uw.save_answers, ({"forget": sheets()["forget"]}, folder / "answers.json"))),
        (3, Call(uw.score_answers, (sheets(),), {"reference": sheets(), "before": None, "resamples": 0, "seed": 0})),
        (3, Call(uw.write_logs, (sheets(), folder / "logs"), {"retrained": None}, places=(1,))),
        (3, Call(uw.answers, (rows()[:3], tokenizer()), {"template": TEMPLATE, "longest": 64, "model": None})),
        (3, Call(uw.packed, (["ada lives in rome"], tokenizer()), {"length": 3, "model": None})),
        (2, Call(uw.PaddingCollator, (0,), {"side": "right"})),
        (
            2,
            Call(
                uw.ask,
                (llama(layers=1), {"forget": rows()[:2]}, tokenizer()),
                {"template": TEMPLATE, "longest": None, "write": 2, "gradients": False, "compute": uw.Compute("cpu")},
            ),
        ),
        (3, Call(uw.Best, (), {})) if False else (3, Call(uw.Note, (), {"ticket": "17"})),
        (4, Call(uw.Limits, (), {"samples": 8, "share": 0.1, "remote_accuracy_drop": 0.5})),
        (4, Call(uw.RelearnSettings, (), {}))
        if False
        else (3, Call(uw.OwnLoss, (lambda outputs, labels: outputs.sum(1),))),
        (
            5,
            Call(
                uw.Request,
                (),
                {
                    "id": "17",
                    "text": "words",
                    "key": None,
                    "previous": None,
                    "content": None,
                    "seed": 0,
                    "settings": {},
                    "method": "ga",
                },
            ),
        ),
        (2, Call(uw.Request.load, (folder / "request.yaml",), {"seed": 1})),
        (3, Call(uw.load_weights, (model(), folder / "weights.safetensors"))),
        (
            3,
            Call(
                uw.record.write,
                (folder / "run", {"id": "17"}),
                {"original": model(), "split": split(), "key": None, "test": None},
            ),
        ),
        (3, Call(uw.Shortfall, (), {"target": 10.0})),
        (2, Call(uw.record.read_record, (folder / "record.json",))),
        (
            2,
            Call(
                uw.evaluate,
                (model(), split()),
                {"test": None, "original": None, "reference": None, "compute": uw.Compute("cpu"), "questions": ()},
            ),
        ),
        (
            2,
            Call(
                run,
                (),
                {
                    "model": model(),
                    "split": split(),
                    "method": "ga",
                    "test": None,
                    "seed": 0,
                    "out": None,
                    "guard": None,
                    "compute": uw.Compute("cpu"),
                    "callbacks": (),
                    "profile": None,
                    "task": None,
                    "resume": False,
                },
            ),
        ),
        (
            1,
            Call(
                run,
                (),
                {
                    "model": model(),
                    "split": split(),
                    "method": "ga",
                    "out": out,
                    "learning_rate": 0.1,
                    "batch_size": 2,
                },
            ),
        ),
        (1, Call(followed, ("tensorboard",), {"folder": folder / "track", "out": out}, places=("folder",))),
    ]
    return found + [
        (1, Call(kind, (), {row["name"]: row["default"] for row in kind.describe()}))
        for kind in all_methods().values()
        if kind.describe()
    ]


@cache
def sheets() -> Any:
    return uw.load_answers(CORPUS / "answers.json")


def followed(*names: Any, folder: Any, out: Any) -> None:
    """Unlearn in one step, followed by trackers."""
    run(model=model(), split=split(), method="ga", out=out, callbacks=[uw.Track(*names, folder=folder)], guard=None)


def run(**arguments: Any) -> Any:
    """Unlearn; with settings, so that a run takes one step."""
    return uw.unlearn(
        arguments.pop("model"), arguments.pop("split"), arguments.pop("method"), **{"epochs": 1, **arguments}
    )
