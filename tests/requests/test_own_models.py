"""MODULE:FUNCTION: a plain module of the user's, on columns of numbers and with a function for its inputs."""

from __future__ import annotations

import sys
import types

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.helpers.own_files import sentences, write_table
from unweave import Request, UsageError

QUICK = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 1}, "no_guard": True, "device": "cpu"}


@pytest.fixture
def code(monkeypatch):
    module = types.ModuleType("my_code")
    module.plain = lambda: nn.Linear(2, 3)
    module.with_inputs = lambda: (
        nn.Linear(3, 3),
        lambda texts: torch.tensor([[len(text), text.count("a"), 1] for text in texts]).float(),
    )
    module.wrong = lambda: "a model"
    monkeypatch.setitem(sys.modules, "my_code", module)
    return module


@pytest.fixture
def table(tmp_path):
    rows = [{"id": row, "x": row / 7, "y": 1.0 - row, "pair": [row, 2.0], "label": row % 3} for row in range(30)]
    return str(write_table(tmp_path / "numbers.parquet", rows))


@pytest.mark.parametrize("columns", ["x, y", ["x", "y"], "pair"])
def test_a_plain_module_reads_columns_of_numbers(code, table, tmp_path, columns):
    weights = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    safetensors.torch.save_file(weights, tmp_path / "mine.safetensors")
    own = {"model": "my_code:plain", "weights": str(tmp_path / "mine.safetensors"), "train": table, "input": columns}
    result = Request(**own, forget=[0, 3], out=str(tmp_path / "run"), **QUICK).run()
    assert torch.equal(result.original.weight, torch.ones(3, 2))
    assert (tmp_path / "run" / "model.safetensors").exists()
    inputs, labels = result.split.samples.read(torch.tensor([5]))
    assert inputs.tolist() == [[5.0, 2.0] if columns == "pair" else [pytest.approx(5 / 7), -4.0]]
    assert labels.tolist() == [2]


def test_a_function_of_the_users_turns_inputs_into_tensors(code, tmp_path):
    rows = [{**row, "label": number % 3} for number, row in enumerate(sentences())]
    data = str(write_table(tmp_path / "texts.parquet", rows))
    prepared = Request(model="my_code:with_inputs", train=data, input="text", forget=["r1"]).prepare()
    text = rows[7]["text"]
    assert prepared.split.samples.read(torch.tensor([7]))[0].tolist() == [[len(text), text.count("a"), 1]]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("my_code:wrong", r"my_code:wrong returned str, but must return a torch nn.Module"),
        ("my_code:missing", r"The model my_code:missing cannot be made: "),
        ("no_such_module:plain", r"The model no_such_module:plain cannot be made: No module named"),
    ],
)
def test_what_is_no_model_is_refused(code, table, model, message):
    with pytest.raises(UsageError, match=message):
        Request(model=model, train=table, forget=[0]).find()
