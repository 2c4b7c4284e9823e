"""Small models and data that many tests share."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import nn

from tests.helpers.shell import shell  # noqa: F401
from unweave import Split
from unweave.lab.benchmarks import find_benchmark

torch.set_num_threads(1)  # steps this small are slowed down by threads, most of all where other work is going on


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def data():
    """60 samples of 3 classes in 5 dimensions, in order of their class."""
    labels = torch.arange(60) // 20
    centres = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 2
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(2))
    return centres[labels] + noise, labels


@pytest.fixture
def split(data):
    return Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(scope="session")
def digits():
    """The embedded benchmark, its data, and its trained model for seed 0."""
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    return benchmark, task, benchmark.train(task, seed=0, device="cpu")


@pytest.fixture
def problem():
    """A smooth problem in float64: a small network, and a split of random data."""
    torch.manual_seed(0)
    data = (torch.randn(60, 5, dtype=torch.float64), torch.arange(60) % 3)
    split = Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double(), split


@pytest.fixture
def unweave_command(monkeypatch, capsys):
    """Run a command line in this process; return its exit code and what it printed."""
    from unweave.cli import main

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", *map(str, words)])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, " ".join(shown.err.split())

    return call
