"""What the engine adds on a CPU: steps of the two-stage method by `unweave.unlearn` against the same written by hand.

    python -m bench.overhead [--cases digits,cnn,transformer] [--rounds 10] [--pairs 3] [--within 0.10] [--out FOLDER]

The yardstick (`bench.by_hand`) is plain torch and computes the same from the same batches, as a test shows. Both sides
run on one core at the same time (`bench.sides`). The ratio is the median over rounds of our processor time to that of
the yardstick; the overhead is the ratio less one.

With ``--within 0.10`` the exit status is 1 if the overhead of a stage is more than 10%.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench import by_hand, clocked, measure, sides
from bench.sides import Side
from unweave import Split
from unweave.engine import Workbench
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import find_method

CPU = torch.device("cpu")
EPOCHS = {"stage1_epochs": 3, "stage2_epochs": 6}
CLASSES, SAMPLES, WORDS, LENGTH = 4, 800, 1000, 32
Run = Callable[[nn.Module], Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, its data, and the settings of the method."""

    model: nn.Module
    data: by_hand.Data
    split: Split
    settings: dict[str, Any]


class Transformer(nn.Module):
    """A small encoder of tokens, with an attention mask."""

    def __init__(self, *, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits."""
        found = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        seen = attention_mask[:, None, None, :].bool()
        for block in self.blocks:
            found = block(found, seen)
        logits: Tensor = self.head(found[:, 0])
        return logits


class Block(nn.Module):
    """Attention and two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.parts, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, found: Tensor, seen: Tensor) -> Tensor:
        """Return the block's output."""
        queries, keys, values = self.parts(self.first(found)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        found = found + self.out(mixed.transpose(1, 2).flatten(2))
        return found + self.layers(self.second(found))


def digits() -> Case:
    """Return the benchmark of that name."""
    benchmark = find_benchmark("digits")
    split = benchmark.load().train
    data = split.samples.read(torch.arange(len(split.samples)))
    settings = dict(benchmark.settings_for(find_method("two-stage"), None))
    return Case(model=benchmark.initial(0), data=data, split=split, settings=settings)


def cnn() -> Case:
    """Return a convolutional network with 60,000 parameters, and random images of 32×32 pixels."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64), (64, 64)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=1 if inputs == 3 else 2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))
    return _random(model, (torch.randn(SAMPLES, 3, 32, 32), torch.arange(SAMPLES) % CLASSES))


def transformer() -> Case:
    """Return an encoder with 170,000 parameters, and random sentences of 32 tokens."""
    torch.manual_seed(0)
    words = torch.randint(1, WORDS, (SAMPLES, LENGTH))
    labels = torch.arange(SAMPLES) % CLASSES
    return _random(Transformer(), {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels})


def _random(model: nn.Module, data: by_hand.Data) -> Case:
    """Return a case of random data: 80 samples to forget, 160 adjacent; and steps too small to diverge."""
    settings = {
        **{f"stage1_{kind}_batch": size for kind, size in (("remote", 64), ("forget", 16))},
        **{f"stage2_{kind}_batch": 64 for kind in ("adjacent", "forget", "remote")},
        "stage2_remote_batches": 2,
        "stage1_learning_rate": 1e-5,
        "stage2_learning_rate": 1e-5,
    }
    split = Split(data, forget=range(80), adjacent=range(80, 240), remote=range(240, SAMPLES))
    return Case(model=model, data=data, split=split, settings=settings)


CASES: dict[str, Callable[[], Case]] = {"digits": digits, "cnn": cnn, "transformer": transformer}


def ours(case: Case, stage: int) -> Run:
    """Return a run of one stage by the public API; it works on a copy of the model."""
    values = {**case.settings, **EPOCHS, f"stage{3 - stage}_epochs": 0}
    return lambda model: clocked.unlearn(model, case.split, "two-stage", guarded=False, **values)


def theirs(case: Case, stage: int) -> tuple[Run, int]:
    """Return a run of one stage by hand, on the model itself, and its number of steps."""
    s = find_method("two-stage").configure({**case.settings, **EPOCHS})
    bench = Workbench(copy.deepcopy(case.model), case.split, device=CPU)
    rows = {subset: torch.as_tensor(case.split[subset]) for subset in ("forget", "remote")}
    if stage == 1:
        remote = bench.batches("remote", size=s.stage1_remote_batch)
        forget = bench.batches("forget", size=s.stage1_forget_batch)
        one = by_hand.Stage1(
            steps=[(remote[number].rows, forget[number].rows) for number in range(s.stage1_epochs * len(remote))],
            remote=rows["remote"],
            learning_rate=s.stage1_learning_rate,
            penalty=s.penalty,
            clip=s.clip,
        )
        return lambda model: by_hand.stage1(model, case.data, one), len(one.steps)
    every = [
        (bench.batches(kind, size=getattr(s, f"stage2_{kind}_batch")), getattr(s, f"stage2_{kind}_batches"))
        for kind in ("adjacent", "forget", "remote")
    ]
    steps = s.stage2_epochs * -(-len(every[0][0]) // min(s.stage2_adjacent_batches, len(every[0][0])))
    two = by_hand.Stage2(
        steps=[[[one.rows for one in some.several(number, count)] for some, count in every] for number in range(steps)],
        forget=rows["forget"],
        learning_rate=s.stage2_learning_rate,
        momentum=s.momentum,
        alpha=s.alpha,
        mean_sign=s.mean_sign,
        most=s.stage2_remote_batch,
    )
    return lambda model: by_hand.stage2(model, case.data, two), steps


def taken(name: str, side: str, counted: bool = False) -> dict[str, Any]:
    """Run both stages of a case on one side; return the intervals of their steps and a digest of the case."""
    case, parts = CASES[name](), {}
    for stage in (1, 2):
        run, steps = theirs(case, stage)
        if side == "ours":
            run = ours(case, stage)
        model = copy.deepcopy(case.model)
        model.register_forward_pre_hook(clocked.stamp)
        _, stamps = clocked.timed(partial(run, model), counted=counted)
        parts[f"{name}, stage {stage}"] = {"count": steps - 1, "intervals": clocked.in_steps(stamps, steps)}
    return {"parts": parts, "digest": name}


def main() -> None:
    """Measure, print, write; fail if the overhead is too large. With ``--side``, be one of the sides."""
    parser = sides.options("What the engine adds to a step on a CPU.", file="overhead-cpu.json", rounds=10)
    parser.add_argument("--cases", default=",".join(CASES), help="names, joined by commas")
    parser.add_argument("--within", type=float, help="the largest overhead allowed, such as 0.10")
    parser.add_argument("--side", choices=("ours", "by hand"), help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.side:
        clocked.serve(lambda counted: taken(words.cases, words.side, counted))
        return
    torch.set_num_threads(1)  # as on both sides, for the file
    rows: dict[str, Any] = {}
    for name in words.cases.split(","):
        command = [sys.executable, "-m", "bench.overhead", "--cases", name, "--side"]
        mine, hand = (Side([*command, side]) for side in ("ours", "by hand"))
        sides.measure_sides([mine, hand], pairs=words.pairs, rounds=words.rounds)
        found = sides.table(mine, hand)
        sides.show(found, other="by hand")
        rows |= found
    measure.write(words.out, "overhead-cpu", {"rounds": words.rounds, "pairs": words.pairs, "parts": rows}, CPU)
    if words.within is not None and (large := sides.slower(rows, than=1 + words.within)):
        raise SystemExit(f"The overhead is more than {words.within:.0%}: {', '.join(large)}.")


if __name__ == "__main__":
    main()
