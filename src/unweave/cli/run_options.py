"""Options of `unweave run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Option(help="Folder to write. It must be new or empty.")]
MethodName = Annotated[str, typer.Option(help="Name of a method (see `unweave methods`).")]
Profile = Annotated[
    str | None, typer.Option(help="Profile of the method: a named set of settings. Default: its first.")
]
RunSeed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of training and unlearning.")]
GoalName = Annotated[
    str | None, typer.Option(help="Goal of the method unweave: erase, or retrain (as if never trained).")
]
LossesFile = Annotated[
    Path | None,
    typer.Option(
        help="For --goal retrain: JSON list of losses on data that was never trained on. Default: the losses of a "
        "model that is trained briefly without the forget data."
    ),
]
SettingValues = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the method. Repeatable.")
]
MicroBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Most samples to differentiate at once. It saves memory; results are the same."),
]
MaxMemory = Annotated[str | None, typer.Option(help="Most GPU memory to use, such as 8GB. Batches are split to fit.")]
Shard = Annotated[
    bool | None,
    typer.Option("--shard/--no-shard", help="Shard the weights over the processes that a launcher started (FSDP2)."),
]
KeepData = Annotated[
    str, typer.Option(help="Keep the data on the device: auto (if it fits), device (always) or host (never).")
]
LimitValues = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="KEY=VALUE", help="Limit of the guard against collapse. Repeatable."),
]
NoGuard = Annotated[bool, typer.Option("--no-guard", help="Do not stop a run that destroys the model.")]
CheckpointSeconds = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds between checkpoints. Default: 60, or 20 times the time to write one."),
]
CheckpointSteps = Annotated[int | None, typer.Option(min=1, help="Most steps between checkpoints.")]
RequestId = Annotated[
    str | None, typer.Option(help="Id of the request. The run then gets a deletion record (record.json).")
]
RequestText = Annotated[str, typer.Option(help="Who or what is to be forgotten, in words, for the record.")]
Key = Annotated[Path | None, typer.Option(help="Private key that signs the record (see `unweave record keygen`).")]
After = Annotated[
    Path | None, typer.Option(help="Folder of the previous run. Start from its model; what it forgot stays forgotten.")
]
WatchRun = Annotated[bool, typer.Option("--watch", help="Log accuracies of the three subsets during the run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the unfinished run of this folder. Without one, begin.")]
