"""The options that only `unweave run` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Option(help="Folder to write; must not hold anything yet.")]
MethodName = Annotated[str, typer.Option(help="A name from `unweave methods`.")]
Profile = Annotated[str | None, typer.Option(help="Named set of values of the method.")]
RunSeed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of training and unlearning.")]
Goal = Annotated[str | None, typer.Option(help="Of the method unweave: erase, or retrain (as if never trained).")]
LossesFile = Annotated[
    Path | None,
    typer.Option(
        help="For --goal retrain: a JSON list of the losses of data never trained on. Default: a brief training "
        "without the forget data tells."
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; repeatable.")
]
MicroBatch = Annotated[
    int | None, typer.Option(min=1, help="Most samples to differentiate at once; same results, less memory.")
]
MaxMemory = Annotated[
    str | None, typer.Option(help="Most memory to take of the GPU, such as 8GB; batches are cut to fit.")
]
Shard = Annotated[
    bool | None,
    typer.Option("--shard/--no-shard", help="Cut the weights among the processes that a launcher started (FSDP2)."),
]
KeepData = Annotated[
    str, typer.Option(help="Keep the data on the device: auto (where it fits), device (always) or host (never).")
]
LimitValues = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="KEY=VALUE", help="A limit of the guard against collapse; repeatable."),
]
NoGuard = Annotated[bool, typer.Option("--no-guard", help="Do not stop a run that destroys the model.")]
CheckpointSeconds = Annotated[
    float | None,
    typer.Option(min=0, help="Time between checkpoints. Default: 60, or 20 times as long as writing one takes."),
]
CheckpointSteps = Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints, at most.")]
RequestId = Annotated[str | None, typer.Option(help="Put the run on record under this id (record.json).")]
RequestText = Annotated[str, typer.Option(help="Who or what is to be forgotten, in words, for the record.")]
Key = Annotated[Path | None, typer.Option(help="Private key that signs the record (unweave record keygen).")]
After = Annotated[
    Path | None, typer.Option(help="The run before this: begin with its model; what it forgot stays forgotten.")
]
WatchRun = Annotated[bool, typer.Option("--watch", help="Log accuracies of the three subsets while it works.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run of this folder.")]
