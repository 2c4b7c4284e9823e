"""What the tests of several processes run, in one process and in several: each case returns tensors to compare.

``torchrun … -m tests.together FOLDER`` runs every case in all processes; the first writes what came out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from unweave import Split, processes, unlearn

# Batches that do not divide by 2 or 3, end unevenly, and have fewer samples than there are processes.
SMALL_BATCHES = {
    "stage1_epochs": 2,
    "stage2_epochs": 2,
    "stage1_learning_rate": 1e-2,
    "stage2_learning_rate": 1e-2,
    "stage1_remote_batch": 13,
    "stage1_forget_batch": 5,
    "stage2_adjacent_batch": 5,
    "stage2_adjacent_batches": 2,
    "stage2_forget_batch": 3,
    "stage2_forget_batches": 2,
    "stage2_remote_batch": 11,
    "stage2_remote_batches": 3,
}
BASELINE = {"epochs": 2, "batch_size": 9, "learning_rate": 1e-2}
BASELINES = {
    "ft": BASELINE,
    "ga": {**BASELINE, "epochs": 1},
    "l1-sparse": BASELINE,
    "retrain": BASELINE,
    "scrub": {**BASELINE, "forget_batch": 5, "temperature": 2.0},
    "ssd": {"batch_size": 7, "selection": 1.0},
    "salun": BASELINE,
    "delete": BASELINE,
    "gdr": {**BASELINE, "tolerance": 1.0, "sharpness": 1.0},
    "munba": BASELINE,
    "unweave": {"epochs": 2, "batch_size": 5, "remote_batch": 11, "forget_batch": 3, "learning_rate": 1e-2},
}


def data():
    """60 samples of 3 classes in 5 dimensions."""
    labels = torch.arange(60) // 20
    centres = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 2
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(2))
    return (centres[labels] + noise).double(), labels


def split():
    return Split(data(), forget=range(8), adjacent=range(8, 20), remote=range(20, 60))


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        return nn.Sequential(*layers).double()


def outcome(result):
    """Return weights and history as tensors."""
    found = {f"weights.{name}": tensor for name, tensor in result.model.state_dict().items()}
    for place, row in enumerate(result.history):
        found |= {
            f"history.{place}.{name}": torch.tensor(value, dtype=torch.float64)
            for name, value in row.items()
            if name not in ("phase", "step")
        }
    cost = result.cost
    found["cost"] = torch.tensor([cost.sample_forwards, cost.sample_gradients])
    return found


def run(method, **settings):
    return outcome(
        unlearn(network(), split(), method, device="cpu", initial=lambda: network(1), limits=None, **settings)
    )


CASES = {
    "two-stage": lambda: run("two-stage", **SMALL_BATCHES),
    "two-stage as printed": lambda: run("two-stage", profile="paper", confident_penalty=0.1, **SMALL_BATCHES),
    "two-stage, training mode": lambda: run(
        "two-stage",
        normalisation="train",
        **{**SMALL_BATCHES, "stage1_remote_batch": 14},  # torch needs two samples
    ),
    "two-stage, micro-batches": lambda: run("two-stage", micro_batch=2, **SMALL_BATCHES),
    **{method: lambda m=method: run(m, **BASELINES[m]) for method in BASELINES},
    "salun as released": lambda: run("salun", profile="released", **BASELINE, forget_batch=5),
}


# In one process nothing is cut, so these are compared with whole weights.
CASES |= {
    f"{name}, sharded": lambda m=name, s=settings: run(m, shard=True, **s)
    for name, settings in {"two-stage": SMALL_BATCHES, **BASELINES}.items()
}


def main(folder):
    torch.set_num_threads(1)
    for name, case in CASES.items():
        found = case()
        if processes.is_first():
            safetensors.torch.save_file(found, Path(folder) / f"{name}.safetensors")
    processes.leave()


if __name__ == "__main__":
    main(sys.argv[1])
