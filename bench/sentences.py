"""What it saves on a CPU to run sentences by their lengths: the two stages and an evaluation, with and without.

    python -m bench.sentences [--out FOLDER]

An encoder of MiniLM's size with random weights reads 1,200 random sentences of 22 tokens on average, 40 at most, which
are the lengths of ToxiGen's. Both ways take turns in one process, and the ratio is the median of those within a round.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from bench import measure
from bench.measure import Laps
from unweave.engine import Workbench, workbench
from unweave.evaluation.predictions import predict
from unweave.methods import find_method
from unweave.split import Split

CPU = torch.device("cpu")
COUNT, LONGEST, WORDS = 1_200, 40, 30_000
ROUNDS = 3
SETTINGS = {
    **{f"stage1_{kind}_batch": 64 for kind in ("remote", "forget")},
    **{f"stage2_{kind}_batch": 64 for kind in ("adjacent", "forget", "remote")},
    "stage2_remote_batches": 4,
    "stage1_learning_rate": 1e-12,  # so that random weights stay what they are
    "stage2_learning_rate": 1e-12,
}


def encoder() -> nn.Module:
    """Return a classifier of MiniLM's size, with random weights."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def sentences() -> Split:
    """Return random sentences: 200 to forget, 200 adjacent, the rest remote."""
    generator = torch.Generator().manual_seed(0)
    lengths = (22 + 9 * torch.randn(COUNT, generator=generator)).round().clamp(4, LONGEST)
    mask = (torch.arange(LONGEST) < lengths[:, None]).long()
    words = torch.randint(1, WORDS, (COUNT, LONGEST), generator=generator) * mask
    data = {"input_ids": words, "attention_mask": mask, "labels": torch.arange(COUNT) % 2}
    return Split(data, range(200), range(200, 400), range(400, COUNT))


def compare(model: nn.Module, split: Split, *, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Return the median seconds of a step, or of an evaluation, by lengths and in whole batches, and the ratio."""
    method = find_method("two-stage")
    bench = Workbench(model, split, device=CPU)
    works: dict[str, Callable[[bool], list[float]]] = {}
    for phase in method.phases(method.configure(SETTINGS)):
        phase.prepare(bench)
        phase.begin()

        def steps(_: bool, phase: measure.Phase = phase) -> list[float]:
            laps = Laps(CPU)
            measure.take_steps(bench, phase, 2, clock=laps)
            return laps.seconds

        works[phase.name] = steps

    def evaluation(by_length: bool) -> list[float]:
        split.samples.cut_padding = by_length
        laps = Laps(CPU)
        laps()
        predict(model, split.samples, split.rows("forget", "adjacent", "remote"), device=CPU)
        laps()
        split.samples.cut_padding = True
        return laps.seconds

    works["evaluation"] = evaluation
    return {name: _ratio(work, rounds) for name, work in works.items()}


def _ratio(work: Callable[[bool], list[float]], rounds: int) -> dict[str, float]:
    usual = workbench.WORTH_A_PASS
    taken: dict[bool, list[float]] = {True: [], False: []}
    work(True)  # which does not count
    try:
        for number in range(rounds):
            for by_length in (True, False) if number % 2 == 0 else (False, True):
                workbench.WORTH_A_PASS = usual if by_length else math.inf
                taken[by_length].append(statistics.median(work(by_length)))
    finally:
        workbench.WORTH_A_PASS = usual
    ours, whole = taken[True], taken[False]
    ratios = [theirs / mine for mine, theirs in zip(ours, whole, strict=True)]
    return {
        "seconds": statistics.median(ours),
        "whole_seconds": statistics.median(whole),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What it saves to run sentences by their lengths.")
    parser.add_argument("--out", type=Path, help="a folder for sentences-cpu.json")
    words = parser.parse_args()
    found = compare(encoder().eval(), sentences())
    for name, row in found.items():
        print(f"{name:12} {row['seconds']:.3f} s, in whole batches {row['whole_seconds']:.3f} s: {row['ratio']:.2f}×")
    measure.write(words.out, "sentences-cpu", {"parts": found}, CPU)


if __name__ == "__main__":
    main()
