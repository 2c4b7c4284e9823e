"""What the tests of several processes run, in one process and in several: each case returns tensors to compare.

``python -m tests.helpers.together PORT COUNT FOLDER [PORT COUNT FOLDER ...]`` runs every case in COUNT processes, which
meet at the store behind PORT; the first of them writes what came out. The processes are forks of one that has imported
everything, because imports took half of their time. What `torchrun` adds is tested with the commands that it starts.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import signal
import sys
import traceback
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.helpers.calling import unlearn_with
from unweave import Compute, Split, StopWhen, Watch, evaluate, unlearn
from unweave import answers as uw_answers
from unweave.engine import Workbench
from unweave.errors import Stopped
from unweave.maths import squared_wasserstein
from unweave.methods.two_stage import Stage2, TwoStage
from unweave.runtime import processes, sharding

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
BASELINE = {"epochs": 2, "batch_size": 19, "learning_rate": 1e-2}
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
    "adaptive": {"effort": 0.3, "least_steps": 6, "batch_size": 5, "forget_batch": 3, "tolerance": 0.0},
    "unweave": {
        "epochs": 2,
        "least_steps": 0,
        "batch_size": 5,
        "remote_batch": 11,
        "forget_batch": 3,
        "learning_rate": 1e-2,
    },
}


def data(dtype=torch.float64):
    """60 samples of 3 classes in 5 dimensions."""
    labels = torch.arange(60) // 20
    centres = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 2
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(2))
    return (centres[labels] + noise).to(dtype), labels


def split(dtype=torch.float64):
    return Split(data(dtype), forget=range(8), adjacent=range(8, 20), remote=range(20, 60))


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        return nn.Sequential(*layers).double()


def outcome(result):
    """Return weights and history as tensors."""
    found = {f"weights.{name}": tensor.clone() for name, tensor in result.model.state_dict().items()}
    for place, row in enumerate(result.history):
        found |= {
            f"history.{place}.{name}": torch.tensor(value, dtype=torch.float64)
            for name, value in row.items()
            if name not in ("phase", "step")
        }
    cost = result.cost
    found["cost"] = torch.tensor([cost.sample_forwards, cost.sample_gradients])
    return found


def run(method, *, model=network, **settings):
    compute = computing(settings)
    return outcome(
        unlearn_with(model(), split(), method, initial=lambda: model(1), guard=None, compute=compute, **settings)
    )


def in_single(**how):
    """Run in single precision, or with passes in half of it."""
    model, samples = network().float(), split(torch.float32)
    settings = {**SMALL_BATCHES, "stage1_optimizer": "sgd"}  # Adam makes large steps of small differences
    return outcome(
        unlearn(model, samples, "two-stage", profile="released", guard=None, compute=computing(how), **settings, **how)
    )


def lora(*, shard):
    from tests.helpers import adapters as tiny

    return outcome(
        unlearn(
            tiny.adapted(),
            tiny.split(),
            "two-stage",
            profile="released",
            guard=None,
            compute=Compute("cpu", shard=shard),
            **tiny.QUICK,
        )
    )


def on_texts(method, *, shard):
    """A method for language models, on a tiny one."""
    from tests.helpers import answers, texts

    facts = uw_answers(texts.rows(), texts.tokenizer(), template=texts.TEMPLATE)
    parts = Split(facts, forget=[0, 1, 2, 7, 11], adjacent=[3, 5, 6], remote=[8, 9, 10, 12, 13])
    own = {"rmu": {"layer": 1, "retain_weight": 1.0}, "dpo": {"alternatives": answers.alternatives(parts.forget)}}
    settings = {"epochs": 2, "batch_size": 3, "learning_rate": 1e-2, "optimizer": "sgd", **own.get(method, {})}
    model = texts.llama(120).double()
    return outcome(unlearn(model, parts, method, guard=None, compute=Compute("cpu", shard=shard), **settings))


class Blocks(nn.Module):
    """Blocks in a list that keep no activations, a weight used in two places, and a layer that is never used."""

    def __init__(self):
        super().__init__()
        self.enter, self.twin = nn.Linear(5, 8), nn.Linear(5, 8)
        self.twin.weight = self.enter.weight
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.leave, self.spare = nn.Linear(8, 3), nn.Linear(2, 2)

    def forward(self, inputs):
        hidden = self.enter(inputs).relu() + self.twin(inputs)
        for block in self.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=False).relu()
        return self.leave(hidden)


def blocks(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Blocks().double()


def direction(*, shard):
    """Gradients, Gram matrix and projected direction of a few steps of stage 2, seen from inside."""
    bench = Workbench(network(), split(), device=torch.device("cpu"), shard=shard)
    phase = Stage2(TwoStage(**SMALL_BATCHES))
    phase.prepare(bench)
    phase.begin()
    batch = phase.to_forget["forget"][0]
    losses = bench.losses(batch)
    distance = squared_wasserstein(
        losses, phase.reference[torch.searchsorted(phase.held.rows, batch.rows)] + batch.rows
    )
    found = {"losses": losses.detach(), "distance": distance.detach()}
    gradient = bench.gradient([distance])
    for number in range(3):
        phase.step(number)
    if bench.sharded:  # nothing that belongs to the weights is whole anywhere
        teacher = list(bench.frozen_copy().parameters())
        assert all(map(sharding.is_cut, [*bench.parameters, *gradient, *phase.velocity, *teacher]))
    for name, parts in {"gradient": gradient, "velocity": phase.velocity}.items():
        found |= {f"{name}.{place}": sharding.whole(part).contiguous() for place, part in enumerate(parts)}
    return found


def numbers(value, path=""):
    """Return every number of a nested mapping or list under its place."""
    if isinstance(value, bool | int | float):
        return {path: torch.tensor(float(value), dtype=torch.float64)}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {place: tensor for name, inner in pairs for place, tensor in numbers(inner, f"{path}/{name}").items()}


def evaluation():
    test = Split((data()[0] + 0.1, data()[1]), forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    return numbers(
        evaluate(network(), split(), test, original=network(1), compute=Compute("cpu"), resamples=5).to_dict()
    )


def neighbours():
    found = Split.by_neighbours(data(), forget=range(7), model=network(), k=3, fraction=0.2, rule="fixed", device="cpu")
    return {name: torch.as_tensor(found[name]) for name in ("adjacent", "remote")}


def watched():
    """The guard and the watch look at the model while it works."""
    result = unlearn(
        network(),
        split(),
        "two-stage",
        profile="released",
        guard={"share": 1.0},
        compute=Compute("cpu"),
        callbacks=[Watch(every=2)],
        **SMALL_BATCHES,
    )
    checks = [{k: v for k, v in check.items() if k != "phase"} for check in result.checks]
    return outcome(result) | numbers(checks, "checks")


def computing(how):
    """Take what is about computing out of some arguments."""
    return Compute("cpu", **{name: how.pop(name) for name in ("shard", "micro_batch", "precision") if name in how})


def stopped(folder, *, steps, **how):
    """Leave a run in a folder after so many steps."""
    asked = iter(range(steps))
    with pytest.raises(Stopped):
        in_folder(folder, callbacks=[StopWhen(lambda: next(asked, None) is None)], **how)


def in_folder(folder, **how):
    compute = computing(how)
    return outcome(
        unlearn(
            network(),
            split(),
            "two-stage",
            profile="released",
            out=folder,
            guard=None,
            compute=compute,
            **SMALL_BATCHES,
            **how,
        )
    )


CASES = {
    "directions": lambda: direction(shard=False),
    "directions, sharded": lambda: direction(shard=True),
    "evaluation": evaluation,
    "neighbours": neighbours,
    "watched": watched,
    "blocks": lambda: run("two-stage", model=blocks, **SMALL_BATCHES),
    "blocks, sharded": lambda: run("two-stage", model=blocks, shard=True, **SMALL_BATCHES),
    "blocks, micro-batches, sharded": lambda: run(
        "two-stage", model=blocks, shard=True, micro_batch=2, **SMALL_BATCHES
    ),
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


CASES |= {
    "single precision": in_single,
    "single precision, sharded": lambda: in_single(shard=True),
    "half precision": lambda: in_single(precision="bfloat16"),
    "half precision, sharded": lambda: in_single(precision="bfloat16", shard=True),
}
WITHIN = {"single": 1e-5, "half": 2e-2}  # where it is not 1e-10
LORA = {"lora": lambda: lora(shard=False), "lora, sharded": lambda: lora(shard=True)}
CASES |= LORA
TEXTS = {
    f"{method} on texts{', sharded' * shard}": lambda m=method, s=shard: on_texts(m, shard=s)
    for method in ("npo", "dpo", "undial", "pdu", "rmu")
    for shard in (False, True)
}
CASES |= TEXTS
# After how many steps a run is left, and whether weights are cut on the side of several processes.
STOPS = {"stopped in stage 1": (3, False), "stopped in stage 1, sharded": (3, True), "stopped in stage 2": (10, True)}


def cases_for(count):
    """Return the names of the cases that so many processes run: all, or with three those that three may change."""
    if count == 2:
        return list(CASES)
    of_two = [*LORA, *TEXTS, *(f"{name}, sharded" for name in BASELINES if name not in ("ft", "salun", "gdr"))]
    return [name for name in CASES if name not in of_two and not name.startswith("half")]


def main(folder):
    """Run every case; resume what one process left, and leave something for one process to resume."""
    torch.set_num_threads(1)
    processes.join("cpu")
    cases = {name: CASES[name] for name in cases_for(processes.count())}
    for name, (steps, shard) in STOPS.items():
        cases[name] = functools.partial(in_folder, folder / f"alone {name}", resume=True, shard=shard)
        stopped(folder / f"together {name}", steps=steps, shard=shard)
    for name, case in cases.items():
        found = case()
        if processes.is_first():
            safetensors.torch.save_file(found, folder / f"{name}.safetensors")
    processes.leave()


LIBRARIES = ("accelerate", "peft", "scipy.stats", "sklearn.linear_model", "torch.distributed.fsdp", "transformers")


def forked(rank, count, port, folder):
    """Start a process of several, with the environment that `torchrun` gives it; return its number."""
    if child := os.fork():
        return child
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is in the process that asks
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    status = 1
    try:
        main(Path(folder))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def start(words):
    """Run the cases in so many processes, one number after the other; raise if a process fails."""
    for name in LIBRARIES:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    for port, count, folder in zip(*[iter(words)] * 3, strict=True):
        children = [forked(rank, int(count), port, folder) for rank in range(int(count))]
        while children:
            child, status = os.wait()
            children.remove(child)
            if status:  # the others wait for it
                for other in children:
                    os.kill(other, signal.SIGKILL)
                raise SystemExit(f"A process of {count} ended with the status {status}.")


if __name__ == "__main__":
    start(sys.argv[1:])
