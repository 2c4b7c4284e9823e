"""A run keeps to a limit on memory, whatever the limit is, and splits batches no more than it must.

A GPU's memory is acted out on the CPU, where every tensor is counted (`tests.helpers.limited`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

import pytest
import torch
from torch import nn

import unweave as uw
from tests.helpers.limited import SmallDevice, holding
from tests.helpers.recorded import acting
from unweave.engine import Guard, Limits, Workbench, run_phases
from unweave.engine.compiling import recording
from unweave.errors import RunError
from unweave.runtime import limited_to

CPU = torch.device("cpu")
ALL = 10**6  # samples at once
SHARES = (0, 0.4, 0.9)  # from one sample at a time to everything at once
SIZES = (1, 4, 16, ALL)


def images():
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(24, 3)
    )
    data = torch.randn(56, 1, 8, 8), torch.arange(56) % 3
    return model.eval(), uw.Split(data, forget=range(16), adjacent=range(16, 32), remote=range(32, 56))


def texts():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=150, tie_word_embeddings=True, **shape))
    ids = torch.randint(3, 150, (48, 32))
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    return model.eval(), uw.Split(data, forget=range(16), adjacent=range(16, 32), remote=range(32, 48))


MAKE = {"images": images, "texts": texts}


@dataclass
class Ended:
    """What is left of a run."""

    weights: dict[str, torch.Tensor]
    peak: int
    size: int
    recorded: int


def run(kind, *, size=ALL, most=None, records=False):
    """Run both stages, with a guard, on a device with so much memory."""
    model, split = MAKE[kind]()
    settings = {f"stage2_{name}": value for name, value in (("adjacent_batch", 8), ("forget_batches", 2))}
    method = uw.TwoStage(
        **settings,
        stage1_learning_rate=1e-3,
        stage2_learning_rate=1e-3,
        stage1_epochs=1,
        stage2_epochs=1,
        stage1_remote_batch=16,
        stage1_forget_batch=8,
        stage2_forget_batch=8,
        stage2_remote_batch=16,
        stage2_remote_batches=2,
    )
    with SmallDevice(most) as device, ExitStack() as stack:
        made = []
        if records:
            made = stack.enter_context(acting())
            stack.enter_context(patch.object(recording, "record", holding(device)))
        bench = Workbench(model, split, device=CPU, micro_batch=size)  # with a size, as a run on CUDA always cares
        stack.enter_context(limited_to(None, CPU))  # as `uw.unlearn` does
        run_phases(bench, list(method.phases()), guard=Guard(bench, Limits()))
    return Ended(dict(bench.model.state_dict()), device.peak, bench.forward.micro_batches.size, len(made))


@cache
def peaks(kind):
    """Return what a run takes with so many samples at once."""
    return {size: run(kind, size=size).peak for size in SIZES}


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.filterwarnings("ignore:The device ran out of memory")
def test_every_limit_is_kept_with_pieces_no_smaller_than_half_of_what_fits(kind, records):
    needed, whole = peaks(kind), run(kind)
    assert needed[1] < needed[4] < needed[16] <= needed[ALL]
    for share in SHARES[1:2] if records else SHARES:
        most = int(needed[1] + share * (needed[ALL] - needed[1]))
        ended = run(kind, most=most, records=records)
        assert ended.peak <= most
        fits = max(size for size, peak in needed.items() if peak <= most)
        assert ended.size >= fits / 2, (share, fits)
        for name, weight in whole.weights.items():
            assert torch.allclose(weight, ended.weights[name], atol=1e-5), name


def test_recorded_passes_are_dropped_before_batches_are_split():
    most = int(0.9 * run("images", records=True).peak)
    ended = run("images", most=most, records=True)
    assert ended.recorded  # until memory was short
    assert ended.size == ALL
    assert ended.peak <= most


@pytest.mark.filterwarnings("ignore:The device ran out of memory")
def test_a_limit_below_a_single_sample_says_so():
    with pytest.raises(RunError, match=r"single sample|smaller batches do not help"):
        run("images", most=peaks("images")[1] // 2)


def test_memory_that_runs_out_between_passes_says_that_smaller_batches_do_not_help(monkeypatch):
    from unweave.methods.two_stage import Stage2

    def fail(self, number):
        raise torch.OutOfMemoryError("a gradient")

    monkeypatch.setattr(Stage2, "_adjacent", fail)
    with pytest.raises(RunError, match=r"smaller batches do not help\. Use a device with more memory"):
        run("images")
