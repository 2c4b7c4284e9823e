"""One side of a comparison of step times on a GPU: runs of the public API, in this process's source tree.

`bench.cuda_steps` starts this file by its path, once for each tree. It imports only `unweave` from the tree. Two runs
of different length are timed for each part; the difference, divided by the steps between them, is the time of a step
without the start of a run.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from typing import Any

import torch
from torch import nn

import unweave as uw

TRAIN, FORGET, ADJACENT, CLASSES = 4000, 128, 1024, 20
# The method, its settings, the setting that holds the epochs, and two numbers of epochs.
PARTS: dict[str, tuple[str, dict[str, Any], str, tuple[int, int]]] = {
    "stage1": ("two-stage", {"stage2_epochs": 0}, "stage1_epochs", (1, 3)),
    "stage2": ("two-stage", {"stage1_epochs": 0}, "stage2_epochs", (2, 3)),
    "fine_tuning": ("ft", {"batch_size": 128}, "epochs", (2, 6)),
}


def network() -> nn.Module:
    """Return a ResNet-18, or a small convolutional network where torchvision cannot be imported."""
    torch.manual_seed(0)
    try:
        from torchvision.models import resnet18
    except (ImportError, RuntimeError):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)
        )
    found: nn.Module = resnet18(num_classes=CLASSES)
    return found


def seconds_of(part: str, split: Any, model: nn.Module, device: str, compile_: str) -> float:
    """Return the seconds of a step of one part."""
    method, settings, epochs, counts = PARTS[part]
    names = inspect.signature(uw.unlearn).parameters
    options: dict[str, Any] = {"guard" if "guard" in names else "limits": None}
    if "progress" in names:
        options["progress"] = False
    if method == "two-stage":
        options["profile"] = "released"
    where = {"device": device, "compile": compile_}
    options |= {"compute": uw.Compute(**where)} if "compute" in names else where
    times = []
    for count in counts:
        result = uw.unlearn(model, split, method, **settings, **{epochs: count}, **options)
        times.append((result.cost.seconds, len(result.history.rows)))
    return (times[1][0] - times[0][0]) / (times[1][1] - times[0][1])


def main() -> None:
    """Answer each line of standard input (part, compile) with the seconds of a step."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    device, size = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(TRAIN, 3, size, size, generator=generator).half().float()
    labels = torch.randint(0, CLASSES, (TRAIN,), generator=generator)
    rest = range(FORGET + ADJACENT, TRAIN)
    split = uw.Split((images, labels), forget=range(FORGET), adjacent=range(FORGET, FORGET + ADJACENT), remote=rest)
    model = network()
    for line in sys.stdin:
        part, compile_ = line.split()
        print(json.dumps(seconds_of(part, split, model, device, compile_)), file=answers, flush=True)


if __name__ == "__main__":
    main()
