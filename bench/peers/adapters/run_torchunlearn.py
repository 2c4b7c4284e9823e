"""Run a method of torchunlearn (Harry24k/machine-unlearning-pytorch), by its README's call, from a checkout.

Batches of 128, SGD(lr=0.01, momentum=0.9, weight_decay=5e-4), 5 epochs and, for RFE, phase1_steps=100,
constraint_tol=0.05 and w2_lambda=1.0 are the README's. Its loaders' augmentation is left out: the original was trained
without.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from handover import Given, StandIn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RETAINED = ("adjacent", "remote")
BATCH = 128
# The README's arguments of each method that it shows; the others have their class's defaults.
README: dict[str, dict[str, Any]] = {
    "RFE": {"phase1_steps": 100, "constraint_tol": 0.05, "w2_lambda": 1.0},
    "NegGrad": {"retain_lambda": 0.5},
    "SFRon": {"saliency_ratio": 0.5, "slow_alpha": 0.5, "slow_every": 5},
}


def main(words: list[str]) -> None:
    """Run what the command line names."""
    given = Given.read(words)
    StandIn("torchvision")
    import torchunlearn
    from torchunlearn import unlearn
    from torchunlearn.utils.data import MergedLoaders

    settings = dict(given.settings)
    epochs, rate = int(settings.pop("epochs", 5)), float(settings.pop("learning_rate", 0.01))
    clip = settings.pop("clip_grad_norm", None)
    model = torchunlearn.RobModel(given.network(), n_classes=int(given.tensors["train.labels"].max()) + 1)
    loaders = {"Retain": _loader(given, *RETAINED), "Forget": _loader(given, "forget")}
    if given.method == "RFE":
        loaders["Adjacent"] = _loader(given, "adjacent")
    arguments = {**README.get(given.method, {}), **settings}

    def run() -> nn.Module:
        trainer = getattr(unlearn, given.method)(model, **arguments)
        optimizer = f"SGD(lr={rate}, momentum=0.9, weight_decay=5e-4)"
        trainer.setup(optimizer=optimizer, n_epochs=epochs, clip_grad_norm=clip)
        trainer.fit(train_loaders=MergedLoaders(loaders), n_epochs=epochs)
        network: nn.Module = model.model
        return network

    used = {"epochs": epochs, "learning_rate": rate, "batch_size": BATCH, "clip_grad_norm": clip, **arguments}
    peer = {"torchunlearn": torchunlearn.__version__}
    given.answer(run, ("torch", "numpy"), settings=used, peer=peer, stand_ins=["torchvision"])


def _loader(given: Given, *subsets: str) -> DataLoader[Any]:
    data = TensorDataset(given.inputs("train", *subsets), given.labels("train", *subsets))
    order = torch.Generator().manual_seed(given.about["seed"])
    return DataLoader(data, batch_size=BATCH, shuffle=True, generator=order)


if __name__ == "__main__":
    main(sys.argv[1:])
