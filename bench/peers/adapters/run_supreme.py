"""Run a method of SUPREME (supreme-unlearning) by the arguments of its own dispatcher, from an unpacked wheel.

The arguments are those of `setup_unlearning` in `supreme/utils/unlearning/unlearn_main.py` for the scenario "subclass"
with ResNet18: one class of a superclass is forgotten, as in our split. Batches have 64 images, the scenario's default.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from handover import Given, StandIn
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

RETAINED = ("adjacent", "remote")
BATCH = 64
DAMPENED = ("ssd", "lfssd", "ssd_det", "lfssd_det", "assd")  # alpha 10 and lambda 1 in the scenario "subclass"
PACKAGES = ("supreme-unlearning", "torch", "lightning", "numpy", "wandb")


class Triples(Dataset[Any]):
    """Samples as SUPREME's data sets give them: image, class, superclass."""

    def __init__(self, inputs: Tensor, fine: Tensor, labels: Tensor) -> None:
        self.inputs, self.fine, self.labels = inputs, fine.tolist(), labels.tolist()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return self.inputs[index], self.fine[index], self.labels[index]


class Grey(nn.Module):
    """Averages three channels to one: UNSIR's noise has three, and a network for grey images takes one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Average the channels."""
        output: Tensor = self.network(images.mean(dim=1, keepdim=True))
        return output


def main(words: list[str]) -> None:
    """Run what the command line names."""
    os.environ["SCALENE"] = "1"  # SUPREME's own switch: no loader processes
    given = Given.read(words)
    StandIn("torchvision", "debugpy", v2=types.SimpleNamespace(Compose=_compose))
    module = importlib.import_module(f"supreme.methods.unlearning_methods.{given.method}")
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    network = given.network()
    coloured = given.method == "unsir" and given.tensors["train.inputs"].shape[1] == 1
    model = Grey(network) if coloured else network
    arguments = {"model": model, **_arguments(given, fabric, model, channels=3 if coloured else None)}
    function = getattr(module, given.method)

    def run() -> nn.Module:
        found: Any = function(**{**arguments, **given.settings})
        while hasattr(found, "module"):
            found = found.module
        final: nn.Module = found.network if coloured else found
        return final

    settings = {**_defaults(function), **_numbers(arguments), **given.settings, "batch_size": BATCH}
    given.answer(run, PACKAGES, settings=settings, stand_ins=["torchvision", "debugpy"], grey=coloured)


def _arguments(given: Given, fabric: Any, model: nn.Module, *, channels: int | None) -> dict[str, Any]:
    """Return what the dispatcher passes; a method takes what it knows, and the rest by `**kwargs`."""
    fine = {"train": given.tensors["train.fine"], "test": given.tensors["test.labels"]}

    def triples(part: str, *subsets: str) -> Triples:
        inputs = given.inputs(part, *subsets)
        inputs = inputs if channels is None else inputs.expand(-1, channels, -1, -1)
        return Triples(inputs, fine[part][given.rows(part, *subsets)], given.labels(part, *subsets))

    def loader(data: Dataset[Any], *, shuffle: bool) -> Any:
        return fabric.setup_dataloaders(DataLoader(data, batch_size=BATCH, shuffle=shuffle))

    retained, forget = triples("train", *RETAINED), triples("train", "forget")
    found: dict[str, Any] = {
        "fabric": fabric,
        "num_gpus": 1,
        "wandb_logging_flag": False,
        "type_of_unlearning_strategy": "subclass",
        "distributed_strategy_name": "ddp",
        "model_name": "ResNet18",
        "num_labels": int(given.tensors["train.labels"].max()) + 1,
        "forget_label_id": int(given.labels("train", "forget")[0]),
        "retain_train_dataloader": loader(retained, shuffle=True),
        "forget_train_dataloader": loader(forget, shuffle=True),
        "full_train_dataloader": loader(ConcatDataset([retained, forget]), shuffle=True),
        "retain_test_dataloader": loader(triples("test", *RETAINED), shuffle=False),
        "forget_test_dataloader": loader(triples("test", "forget"), shuffle=False),
    }
    if given.method == "unsir":
        found["trainset"] = triples("train", "forget", *RETAINED)
    if given.method == "bad_teacher":
        found["unlearning_teacher"] = fabric.setup(_untrained(model))
    if given.method in DAMPENED:
        found |= {"dampening_constant": 1.0, "selection_weighting": 10.0}
    return found


def _untrained(model: nn.Module) -> nn.Module:
    """Return the network with new random weights, the teacher that knows nothing."""
    other = copy.deepcopy(model)
    for module in other.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    return other


def _compose(transforms: list[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
    """Do what torchvision's Compose does: apply one transform after the other."""

    def apply(image: Tensor) -> Tensor:
        for transform in transforms:
            image = transform(image)
        return image

    return apply


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    found = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float | str)}


def _numbers(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in ("dampening_constant", "selection_weighting") if name in arguments}


if __name__ == "__main__":
    main(sys.argv[1:])
