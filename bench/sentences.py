"""How much time a CPU saves by running sentences by length: the two stages and an evaluation.

    python -m bench.sentences [--out FOLDER]

An encoder of MiniLM's size with random weights reads 1,200 random sentences of 22 tokens on average and 40 at most, the
lengths of ToxiGen. Both ways take turns in one process; the ratio is the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench import measure
from bench.measure import Laps
from unweave.api import Split
from unweave.engine import Workbench
from unweave.evaluation import predict
from unweave.methods import find_method

CPU = torch.device("cpu")
COUNT, LONGEST, WORDS = 1_200, 40, 30_000
ROUNDS = 3
SETTINGS = {
    **{f"stage1_{kind}_batch": 64 for kind in ("remote", "forget")},
    **{f"stage2_{kind}_batch": 64 for kind in ("adjacent", "forget", "remote")},
    "stage2_remote_batches": 4,
    "stage1_learning_rate": 1e-12,  # moves nothing, so random weights cannot diverge
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
    """Return the median seconds of a step and of an evaluation, by length and in whole batches, and the ratio."""
    method = find_method("two-stage")
    bench = Workbench(model, split, device=CPU)
    works: dict[str, Callable[[], Any]] = {}
    for phase in method.configure(SETTINGS).phases():
        phase.prepare(bench)
        phase.begin()
        works[phase.name] = partial(measure.take_steps, bench, phase, 1)
    rows = split.rows("forget", "adjacent", "remote")
    works["evaluation"] = partial(predict, model, split.samples, rows, device=CPU)
    found = {}
    for name, work in works.items():
        sides = (partial(_timed, work, bench, by_length=by_length) for by_length in (True, False))
        seconds, whole, ratio = measure.in_turns(*sides, rounds=rounds)
        found[name] = {"seconds": seconds, "whole_seconds": whole, "ratio": ratio}
    return found


def _timed(work: Callable[[], Any], bench: Workbench, *, by_length: bool) -> list[float]:
    """Time some work. In whole batches nothing is cut, because each batch has a sentence of full length."""
    bench.split.samples.cut_padding = by_length
    bench.forward.may_run_apart(by_length)
    laps = Laps(CPU)
    laps()
    work()
    laps()
    bench.split.samples.cut_padding = None
    bench.forward.may_run_apart(True)
    return laps.seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="How much time a CPU saves by running sentences by length.")
    parser.add_argument("--out", type=Path, help="folder for sentences-cpu.json")
    words = parser.parse_args()
    found = compare(encoder().eval(), sentences())
    for name, row in found.items():
        print(f"{name:12} {row['seconds']:.3f} s, in whole batches {row['whole_seconds']:.3f} s: {row['ratio']:.2f}×")
    measure.write(words.out, "sentences-cpu", {"parts": found}, CPU)


if __name__ == "__main__":
    main()
